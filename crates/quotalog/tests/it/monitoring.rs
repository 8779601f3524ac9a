//! The alerts and the graphs of `deploy/`, over the metrics of a real server in a real Prometheus.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use hyper::Method;
use serde_json::Value;

use crate::support::app::encoded;
use crate::support::running::Running;
use crate::support::server::{ADMIN, Connection, Server, Site, skipped, until};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
const GRAPHS: &str = include_str!("../../../../deploy/grafana-dashboard.json");

#[test]
fn promtool_takes_the_alerts_and_their_tests() {
    let rules = ["check", "rules", "alerts.yml"];
    let tests = ["test", "rules", "alerts.test.yml"];
    for arguments in [rules, tests] {
        let mut promtool = Command::new("promtool");
        promtool.args(arguments).current_dir(DEPLOY);
        let Ok(output) = promtool.output() else {
            return skipped("there is no promtool (package prometheus)");
        };
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
}

/// Prometheus, which asks `server` many times a second and knows the alerts.
fn watch(server: &Server, folder: &Path) -> Option<(Running, SocketAddr)> {
    let config = format!(
        "global: {{ scrape_interval: 200ms, evaluation_interval: 1s }}\n\
         rule_files: [{DEPLOY}/alerts.yml]\n\
         scrape_configs:\n\
         - job_name: quotalog\n  \
           authorization: {{ credentials: {ADMIN} }}\n  \
           static_configs: [{{ targets: ['{}'] }}]\n",
        server.address
    );
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", file.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.join("tsdb").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Some((Running(prometheus.spawn().ok()?), address))
}

/// What Prometheus answers, once it does.
async fn asked(prometheus: SocketAddr, path: &str) -> Option<Value> {
    let mut connection = Connection::open(prometheus).await.ok()?;
    let answer = connection.call(Method::GET, path, "", "").await.ok()?;
    (answer.status == 200).then(|| answer.json()["data"].clone())
}

/// The questions of all graphs, as Grafana asks them.
fn questions() -> Vec<String> {
    let graphs: Value = serde_json::from_str(GRAPHS).unwrap();
    let panels = graphs["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    let questions = targets.flatten().map(|target| {
        let question = target["expr"].as_str().unwrap();
        let question = question.replace("$__rate_interval", "10s");
        let question = question.replace("$job", "quotalog");
        let question = question.replace("$instance", ".*");
        assert!(!question.contains('$'), "{question}");
        question
    });
    questions.collect()
}

#[tokio::test]
async fn every_graph_has_something_to_show_and_every_alert_something_to_watch() {
    let site = Site::new();
    let server = site.serve_rls();
    server.set("/quotas/u/r", "daily", 1_000_000).await;
    let Some((_running, prometheus)) = watch(&server, site.folder.path()) else {
        return skipped("there is no Prometheus (package prometheus)");
    };
    let consume = async || {
        let consumed = server.call(Method::POST, "/quotas/u/r/consume", "").await;
        consumed.is(200);
    };

    let questions = questions();
    assert!(questions.len() > 20, "{questions:?}");
    for question in &questions {
        let path = format!("/api/v1/query?query={}", encoded(question));
        until(question, async || {
            consume().await;
            let found = asked(prometheus, &path).await;
            found.is_some_and(|found| {
                found["result"]
                    .as_array()
                    .is_some_and(|all| !all.is_empty())
            })
        })
        .await;
    }

    let mut rules = Vec::new();
    until("the alerts are evaluated", async || {
        let found = asked(prometheus, "/api/v1/rules").await;
        let found = found.unwrap_or_default()["groups"][0]["rules"].clone();
        rules = found.as_array().cloned().unwrap_or_default();
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")
    })
    .await;
    let names = asked(prometheus, "/api/v1/label/__name__/values").await;
    let names = names.unwrap_or_default();
    let known: BTreeSet<&str> = names
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    for rule in &rules {
        let name = &rule["name"];
        assert!(rule["annotations"]["reason"].is_string(), "{name}");
        let severity = rule["labels"]["severity"].as_str().unwrap_or_default();
        assert!(["page", "ticket"].contains(&severity), "{name}");
        assert_ne!(rule["state"], "firing", "{name}");
        let query = rule["query"].as_str().unwrap();
        let words = query.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let series = words.filter(|word| {
            *word == "up" || word.starts_with("quotalog_") || word.starts_with("process_")
        });
        let series: Vec<&str> = series.collect();
        assert!(!series.is_empty(), "{name}: {query}");
        for name in series {
            assert!(known.contains(name), "{name} of {query} is not measured");
        }
    }
}
