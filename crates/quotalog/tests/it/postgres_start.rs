//! Starts on PostgreSQL: before the database, many at once, with passwords and TLS; and what is refused.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use hyper::Method;
use quotalog_testkit::postgres::{Cluster, Database, Setup, Stop};

use crate::cli::succeeds;
use crate::postgres::site;
use crate::support::server::{Server, Site};
use crate::support::tls::Pair;

const PATH: &str = "/quotas/u/r";
const CONSUME: &str = "/quotas/u/r/consume";
const PASSWORD: &str = "pa:ss wörd";

/// A database whose owner must know a password, and a URL without one.
fn guarded() -> Option<(Database, String)> {
    let database = Cluster::shared()?.database();
    let (name, owner) = (database.name(), format!("owner_of_{}", database.name()));
    database.ask(&format!(
        "CREATE ROLE {owner} LOGIN PASSWORD '{PASSWORD}'; ALTER DATABASE {name} OWNER TO {owner}"
    ));
    let url = database.url().replace("postgres@", &format!("{owner}@"));
    Some((database, url))
}

fn at<'a>(command: &'a mut Command, url: &str) -> &'a mut Command {
    command.env("QUOTALOG_DATABASE", url)
}

async fn works(server: &Server) {
    server.ready().await;
    server.set(PATH, "daily", 1_000).await;
    server.call(Method::POST, CONSUME, "").await.is(200);
}

#[tokio::test]
async fn a_node_that_starts_before_its_database_is_alive_and_waits() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let site = Site::on(&cluster.database());
    cluster.stop(Stop::Fast);
    let server = site.serve_with(|command| command.env_remove("QUOTALOG_ADMIN_TOKEN"));
    server.call(Method::GET, "/healthz", "").await.is(200);
    for (method, path) in [
        (Method::GET, "/readyz"),
        (Method::GET, PATH),
        (Method::POST, CONSUME),
        (Method::GET, "/tokens"),
    ] {
        let answer = server.call(method, path, "").await;
        answer.problem(503, "unavailable");
    }
    let file = site.folder.path().join("admin-token");
    assert!(!file.exists());

    cluster.start();
    server.ready().await;
    // It is the same process, and made its first token on the way.
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    let mut connection = server.connect().await;
    let body = r#"{"window":"daily","limit_count":5}"#;
    let put = connection.call(Method::PUT, PATH, token.trim(), body);
    put.await.unwrap().is(200);
    let consume = connection.call(Method::POST, CONSUME, token.trim(), "");
    consume.await.unwrap().is(200);
    let log = site.log();
    assert_eq!(log.matches("waiting for the database").count(), 1, "{log}");
    assert!(
        !log.contains(" ERROR quotalog") && !log.contains("ql_"),
        "{log}"
    );
    assert_eq!(server.stop().code(), Some(0));
}

#[tokio::test]
async fn what_is_asked_of_a_node_that_waits_counted_nothing() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let site = Site::on(&cluster.database());
    let server = site.serve();
    server.ready().await;
    server.set(PATH, "daily", 5).await;
    server.stop();
    cluster.stop(Stop::Fast);
    let server = site.serve();
    // The token of the environment needs no database, so this one waits for its turn, in vain.
    let consume = server.call(Method::POST, CONSUME, "").await;
    consume.problem(503, "unavailable");
    cluster.start();
    server.ready().await;
    assert_eq!(server.usage(PATH).await.1, 0);
    server.call(Method::POST, CONSUME, "").await.is(200);
}

#[tokio::test]
async fn a_node_that_waits_ends_when_it_is_told_to() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let site = Site::on(&cluster.database());
    cluster.stop(Stop::Fast);
    let server = site.serve();
    assert_eq!(server.stop().code(), Some(0));
}

#[tokio::test]
async fn a_database_that_turns_out_to_be_of_no_use_ends_the_node_that_waited() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let database = cluster.database();
    cluster.stop(Stop::Fast);
    let site = Site::on(&database);
    let server = site.serve_with(|command| {
        let url = database.url().replace(database.name(), "no_such_database");
        at(command, &url)
    });
    cluster.start();
    assert_eq!(server.ended().await.code(), Some(2));
    let log = site.log();
    let last = log.lines().last().unwrap();
    assert!(last.starts_with("quotalog: --database"), "{log}");
    assert!(last.contains("no_such_database"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_that_start_at_once_on_an_empty_database_are_ready_with_one_token() {
    for _ in 0..20 {
        let Some(site) = site() else { return };
        let start = || site.serve_with(|command| command.env_remove("QUOTALOG_ADMIN_TOKEN"));
        let servers: Vec<_> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..3).map(|_| scope.spawn(start)).collect();
            let started = starting
                .into_iter()
                .map(|starting| starting.join().unwrap());
            started.collect()
        });
        for server in &servers {
            server.ready().await;
        }
        let token = std::fs::read_to_string(site.folder.path().join("admin-token")).unwrap();
        for server in &servers {
            let mut connection = server.connect().await;
            let list = connection.call(Method::GET, "/tokens", token.trim(), "");
            let list = list.await.unwrap().is(200).json();
            assert_eq!(list["tokens"].as_array().unwrap().len(), 1, "{list}");
        }
        let log = site.log();
        let made = log.matches("made the first admin token").count();
        assert_eq!(made, 1, "{log}");
        assert!(!log.contains(" ERROR quotalog"), "{log}");
        for server in servers {
            assert_eq!(server.stop().code(), Some(0));
        }
    }
}

#[tokio::test]
async fn a_password_comes_from_the_url_the_variable_or_the_passfile() {
    let Some((database, url)) = guarded() else {
        return;
    };
    let site = Site::on(&database);
    let passfile = site.folder.path().join("passfile");
    let line = format!("*:*:*:*:{}\n", PASSWORD.replace(':', r"\:"));
    std::fs::write(&passfile, line).unwrap();
    std::fs::set_permissions(&passfile, PermissionsExt::from_mode(0o600)).unwrap();
    let written = "pa%3Ass%20w%C3%B6rd@";
    let in_url = url.replacen('@', &format!(":{written}"), 1);
    let ways: [&dyn Fn(&mut Command); 4] = [
        &|command| {
            at(command, &in_url);
        },
        &|command| {
            at(command, &url).env("PGPASSWORD", PASSWORD);
        },
        &|command| {
            at(command, &url).env("PGPASSFILE", &passfile);
        },
        &|command| {
            at(command, &format!("{url}?passfile={}", passfile.display()));
        },
    ];
    for way in ways {
        let server = site.serve_with(|command| {
            way(command);
            command
        });
        works(&server).await;
    }
    assert!(!site.log().contains("pa:ss"), "{}", site.log());

    for (password, code) in [(None, 2), (Some("wr0ng"), 2)] {
        let (exit, line) = site.refused(|command| match password {
            Some(password) => at(command, &url).env("PGPASSWORD", password),
            None => at(command, &url),
        });
        assert_eq!(exit, code, "{line}");
        assert!(line.contains("password"), "{line}");
        assert!(!line.contains("wr0ng"), "{line}");
    }
}

#[tokio::test]
async fn of_several_hosts_the_one_that_writes_is_found() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let site = Site::on(&database);
    // Nobody listens on port 1.
    let url = database.url().replacen('@', "@127.0.0.1:1,", 1);
    let server = site.serve_with(|command| at(command, &url));
    works(&server).await;
    // A database that takes no writes is waited for, as a failover would be.
    let name = database.name();
    database.ask(&format!(
        "ALTER DATABASE {name} SET default_transaction_read_only = on"
    ));
    let url = format!("{}?target_session_attrs=read-write", database.url());
    let server = site.serve_with(|command| at(command, &url));
    let readiness = server.call(Method::GET, "/readyz", "").await;
    readiness.problem(503, "unavailable");
    database.ask(&format!(
        "BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"
    ));
    works(&server).await;
}

#[tokio::test]
async fn tls_is_as_the_url_says() {
    let pair = Pair::new();
    let setup = Setup::new()
        .setting("ssl", "on")
        .file("server.crt", &*pair.certificate)
        .file("server.key", &*pair.key)
        .file(
            "pg_hba.conf",
            "hostssl all all 127.0.0.1/32 trust\nhostnossl test_plain all 127.0.0.1/32 trust\n",
        );
    let Some(cluster) = Cluster::own(&setup) else {
        return;
    };
    let database = cluster.database();
    let site = Site::on(&database);
    pair.lay(site.folder.path());
    let other = site.folder.path().join("other");
    Pair::new().lay(&other);
    let authorities = |folder: &Path| {
        let file = folder.join("cert.pem");
        format!("sslmode=verify-full&sslrootcert={}", file.display())
    };
    let own = authorities(site.folder.path());
    let by_name = database.url().replace("127.0.0.1", "localhost");

    for (url, parameters) in [
        (&database.url(), "sslmode=require"),
        (&database.url(), "sslmode=prefer"),
        (&database.url(), "application_name=x"),
        (&by_name, &*own),
    ] {
        let server = site.serve_with(|command| at(command, &format!("{url}?{parameters}")));
        works(&server).await;
        let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                         WHERE backend_type = 'client backend' AND NOT ssl";
        assert_eq!(database.ask(encrypted), "0");
    }
    for (url, parameters) in [
        // The server lets nobody in without it.
        (&database.url(), "sslmode=disable"),
        // The certificate is for localhost.
        (&database.url(), &*own),
        (&by_name, &*authorities(&other)),
    ] {
        let (code, line) = site.refused(|command| at(command, &format!("{url}?{parameters}")));
        assert_eq!(code, 2, "{line}");
        assert!(line.contains("--database (QUOTALOG_DATABASE)"), "{line}");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_in_one_line() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let database = cluster.database();
    let site = Site::on(&database);
    let server = site.serve();
    server.ready().await;
    server.stop();
    database.ask(
        "INSERT INTO quotalog_schema_history SELECT 999, 'of_tomorrow', applied_on, checksum \
         FROM quotalog_schema_history LIMIT 1",
    );
    let (code, line) = site.refused(|command| command);
    assert_eq!(code, 1);
    assert!(line.contains("schema 999"), "{line}");
}

#[tokio::test]
async fn the_command_line_works_beside_a_node() {
    let Some(site) = site() else { return };
    let server = site.serve();
    server.ready().await;
    server.set(PATH, "daily", 5).await;
    let token = site.token(&["--role", "user", "--user-id", "u", "--json"]);
    let token: serde_json::Value = serde_json::from_str(&token).unwrap();
    let (id, secret) = (token["id"].as_str().unwrap(), token["token"].as_str());
    let secret = secret.unwrap();
    let mut connection = server.connect().await;
    let consume = connection.call(Method::POST, CONSUME, secret, "");
    consume.await.unwrap().is(200);
    let listed = site.run(&["token", "list", "--json"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(id) && !listed.contains(secret), "{listed}");
    succeeds(&site.run(&["token", "revoke", id]));
    let consume = connection.call(Method::POST, CONSUME, secret, "");
    consume.await.unwrap().problem(401, "unauthorized");
    let pruned = site.run(&["prune"]);
    succeeds(&pruned);
    assert_eq!(
        String::from_utf8(pruned.stdout).unwrap(),
        "deleted 0 rows\n"
    );

    let backup = site.run(&["backup", "copy.db"]);
    assert_eq!(backup.status.code(), Some(2));
    let said = String::from_utf8(backup.stderr).unwrap();
    assert!(said.contains("pg_dump"), "{said}");
}

#[tokio::test]
async fn a_command_without_its_database_is_told_that_it_is_unreachable() {
    let Some(cluster) = Cluster::own(&Setup::new()) else {
        return;
    };
    let site = Site::on(&cluster.database());
    cluster.stop(Stop::Fast);
    let output = site.run(&["token", "list"]);
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("QUOTALOG_DATABASE"), "{said}");
}
