//! What an operator takes from a running node in the database, and gives back: never a fault of ours.

use hyper::Method;
use quotalog_testkit::postgres::{Cluster, Database};
use tonic::Code;

use crate::cli::succeeds;
use crate::support::rls::{Rls, call, of_pair};
use crate::support::server::{ADMIN, Server, Site, until, with_rls};

const PATH: &str = "/quotas/u/r";
const CONSUME: &str = "/quotas/u/r/consume";
const RIGHTS: &str = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public";

/// A node whose role has the rights that the documentation gives it, and its way over gRPC.
struct Scene {
    database: Database,
    site: Site,
    node: Server,
    rls: Rls,
    role: String,
    granted: u64,
}

impl Scene {
    async fn set() -> Option<Self> {
        let database = Cluster::shared()?.database();
        let site = Site::on(&database);
        let listed = site.run(&["token", "list"]);
        succeeds(&listed);
        let role = format!("{}_node", database.name());
        database.ask(&format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'secret'; GRANT {RIGHTS} TO {role}"
        ));
        let url = database
            .url()
            .replace("postgres@", &format!("{role}:secret@"));
        let node = site.serve_with(|command| with_rls(command).env("QUOTALOG_DATABASE", url));
        node.ready().await;
        node.set(PATH, "daily", 1_000_000).await;
        let rls = Rls::connect(node.rls_address(), ADMIN).await;
        let mut scene = Self {
            database,
            site,
            node,
            rls,
            role,
            granted: 0,
        };
        scene.serves().await;
        Some(scene)
    }

    /// One unit each way, and the node is ready.
    async fn serves(&mut self) {
        self.node.ready().await;
        until("a consume is granted", async || {
            let answer = self.node.call(Method::POST, CONSUME, "").await;
            answer.status == 200 || {
                answer.problem(503, "unavailable");
                false
            }
        })
        .await;
        let answer = self.rls.send(call(vec![of_pair("u", "r")])).await;
        answer.unwrap();
        self.granted += 2;
        assert_eq!(self.node.usage(PATH).await.1, self.granted);
    }

    fn ask(&self, sql: &str) {
        self.database.ask(&sql.replace("THEIR", &self.role));
    }

    /// Nothing is counted while what `take` takes is away, and the log says why; then `give` gives it back.
    async fn without(&mut self, take: &str, why: &str, give: &str) {
        let before = self.site.log().len();
        self.ask(take);
        self.counts_nothing().await;
        let log = &self.site.log()[before..];
        assert!(log.contains(why), "{take}: {log}");
        self.ask(give);
        self.serves().await;
    }

    async fn counts_nothing(&self) {
        for _ in 0..2 {
            let answer = self.node.call(Method::POST, CONSUME, "").await;
            answer.problem(503, "unavailable");
            let answer = self.rls.send(call(vec![of_pair("u", "r")])).await;
            assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
            let answer = self.node.call(Method::GET, "/readyz", "").await;
            answer.problem(503, "unavailable");
        }
    }

    /// Nothing was taken for a fault of ours.
    fn ends(self) {
        let log = self.site.log();
        assert!(!log.contains(" ERROR "), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_away_is_a_503_until_it_is_given_back() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    let grant = format!("GRANT {RIGHTS} TO THEIR");
    for (take, denied) in [
        (
            "REVOKE ALL ON quota_usage FROM THEIR",
            "permission denied for table quota_usage, code 42501",
        ),
        (
            "REVOKE INSERT ON quota_usage FROM THEIR",
            "permission denied for table quota_usage, code 42501",
        ),
        (
            "REVOKE UPDATE ON quota_policies FROM THEIR",
            "permission denied for table quota_policies, code 42501",
        ),
        (
            "REVOKE SELECT ON quotalog_defaults FROM THEIR",
            "permission denied for table quotalog_defaults, code 42501",
        ),
        (
            "REVOKE SELECT ON quotalog_token_generation FROM THEIR",
            "permission denied for table quotalog_token_generation, code 42501",
        ),
    ] {
        scene.without(take, denied, &grant).await;
    }
    let log = scene.site.log();
    assert!(log.contains("grant it SELECT, INSERT, UPDATE"), "{log}");
    scene.ends();
}

/// As during a restore, or by a slip of the hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_or_schema_that_is_gone_is_a_503_until_it_is_back() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    for (take, give) in [
        (
            "ALTER TABLE quota_usage RENAME TO aside",
            "ALTER TABLE aside RENAME TO quota_usage",
        ),
        (
            "ALTER SCHEMA public RENAME TO aside",
            "ALTER SCHEMA aside RENAME TO public",
        ),
        (
            "REVOKE USAGE ON SCHEMA public FROM PUBLIC",
            "GRANT USAGE ON SCHEMA public TO PUBLIC",
        ),
    ] {
        let why = "the tables are not there, or not as they were made";
        scene.without(take, why, give).await;
    }
    scene.ends();
}

/// What counting does without does not take the node out of service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_counting_does_without_is_missed_by_its_own_routes_alone() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    scene.ask("REVOKE ALL ON quotalog_audit FROM THEIR");
    for _ in 0..3 {
        for (method, path, body) in [
            (Method::GET, "/audit", ""),
            (Method::PUT, PATH, r#"{"window":"daily","limit_count":7}"#),
        ] {
            let answer = scene.node.call(method, path, body).await;
            answer.problem(503, "unavailable");
        }
        scene.serves().await;
    }
    // Questions are no writes, so that a line of their own tells why.
    let log = scene.site.log();
    let told = log
        .lines()
        .find(|line| line.contains("the store failed a request"));
    let why = "permission denied for table quotalog_audit";
    assert!(told.is_some_and(|line| line.contains(why)), "{log}");
    scene.ends();
}

/// Whoever may not come in any more is told so by the log, and comes in when it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_is_let_in_no_more_is_a_503_until_it_is() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    let end =
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'THEIR'";
    for (take, why, give) in [
        (
            "ALTER ROLE THEIR PASSWORD 'another'",
            "code 28P01",
            "ALTER ROLE THEIR PASSWORD 'secret'",
        ),
        (
            "ALTER ROLE THEIR NOLOGIN",
            "code 28000",
            "ALTER ROLE THEIR LOGIN",
        ),
    ] {
        scene.ask(take);
        // A session that was coming in meanwhile is not seen at once.
        until("all its sessions have ended", async || {
            scene.ask(end);
            let answer = scene.node.call(Method::GET, "/readyz", "").await;
            answer.status == 503
        })
        .await;
        scene.counts_nothing().await;
        let log = scene.site.log();
        assert!(log.contains(why), "{take}: {log}");
        scene.ask(give);
        scene.serves().await;
    }
    scene.ends();
}
