//! Clients whose connections are cut anywhere, by themselves or by the server's end, and who repeat each
//! keyed consume until it is answered: every one counts exactly once.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::chance::Chance;
use crate::support::raw::{RawAnswer, request};
use crate::support::server::{ADMIN, Server, Site, until};
use crate::support::stream::Stream;

const CLIENTS: usize = 20;
const CONSUMES_OF_EACH: usize = 100;
const ENDS_OF_THE_SERVER: usize = 12;

/// Where a client cuts its own connection.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// After so many bytes of the request.
    Request(usize),
    /// After the whole request and so many bytes of the answer.
    Answer(usize),
    Never,
}

/// What became of the clients' attempts, and how many of them.
type Attempts = BTreeMap<&'static str, usize>;

/// One client, its chances, and what it was answered under each of its keys.
struct Client {
    name: usize,
    chance: Chance,
    addresses: watch::Receiver<Vec<SocketAddr>>,
    answered: watch::Sender<usize>,
    connection: Option<Stream>,
    answers: Vec<RawAnswer>,
    attempts: Attempts,
}

/// Clients at work, who insist on 2,000 consumes of the pair `u`, `retries`.
pub(crate) struct Clients {
    clients: Vec<JoinHandle<Client>>,
    addresses: watch::Sender<Vec<SocketAddr>>,
    answers: watch::Receiver<usize>,
}

impl Clients {
    pub(crate) fn start(chance: &mut Chance, addresses: impl Into<Vec<SocketAddr>>) -> Self {
        let (sender, addresses) = watch::channel(addresses.into());
        let (answered, answers) = watch::channel(0);
        let clients = (0..CLIENTS).map(|name| {
            let client = Client {
                name,
                chance: chance.fork(),
                addresses: addresses.clone(),
                answered: answered.clone(),
                connection: None,
                answers: Vec::new(),
                attempts: Attempts::new(),
            };
            tokio::spawn(client.consume_all())
        });
        Self {
            clients: clients.collect(),
            addresses: sender,
            answers,
        }
    }

    /// Waits until so many of so many parts are answered, and one more part is left.
    pub(crate) async fn until_answered(&self, parts: usize, of: usize) {
        let at = CLIENTS * CONSUMES_OF_EACH * parts / (of + 1);
        until("answers", async || *self.answers.borrow() >= at).await;
    }

    /// Where servers listen from now on.
    pub(crate) fn go_to(&self, addresses: impl Into<Vec<SocketAddr>>) {
        self.addresses.send(addresses.into()).unwrap();
    }

    /// Waits for the last answer, and checks that each consume was counted once, in the window that was answered.
    pub(crate) async fn have_counted_once_each(self, site: &Site) {
        self.counted_once_each(site).await;
    }

    async fn counted_once_each(self, site: &Site) -> Vec<Client> {
        let mut all = Vec::new();
        let mut attempts = Attempts::new();
        let mut granted: BTreeMap<String, u64> = BTreeMap::new();
        for client in self.clients {
            let client = client.await.unwrap();
            for answer in &client.answers {
                let window_start = answer.json()["window_start"].as_str().unwrap().to_owned();
                *granted.entry(window_start).or_default() += 1;
            }
            for (&became, times) in &client.attempts {
                *attempts.entry(became).or_default() += times;
            }
            all.push(client);
        }
        eprintln!("{attempts:?}");
        let stored = site.stored("u", "retries");
        assert_eq!(stored.values().sum::<u64>(), 2_000);
        assert_eq!(stored, granted);
        for frequent in [
            "cut in head",
            "cut in body",
            "cut before answer",
            "cut in answer",
            "replayed",
        ] {
            assert!(attempts.get(frequent) >= Some(&100), "{frequent}");
        }
        assert!(attempts.contains_key("broken by the server"));
        all
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumes_that_are_cut_off_anywhere_and_repeated_count_once_each() {
    let mut chance = Chance::new();
    let site = Site::new();
    let mut server = site.serve();
    server.set("/quotas/u/retries", "daily", 1_000_000).await;
    let clients = Clients::start(&mut chance, [server.address]);
    for end in 1..=ENDS_OF_THE_SERVER {
        clients.until_answered(end, ENDS_OF_THE_SERVER).await;
        server = end_and_start(&mut chance, &site, server).await;
        clients.go_to([server.address]);
    }
    let mut all = clients.counted_once_each(&site).await;

    // Long after, and after one more crash, each key is answered as it was.
    let stored = site.stored("u", "retries");
    server.kill();
    let server = site.serve();
    for client in &mut all {
        client.is_answered_again(server.address).await;
    }
    assert_eq!(site.stored("u", "retries"), stored);
}

/// Ends a server, as a crash does or as an operator does, and starts the next.
async fn end_and_start(chance: &mut Chance, site: &Site, server: Server) -> Server {
    if chance.below(3) == 0 {
        server.signal("TERM");
        assert_eq!(server.ended().await.code(), Some(0));
    } else {
        server.kill();
    }
    site.serve()
}

impl Cut {
    fn place(self, head_bytes: usize) -> &'static str {
        match self {
            Self::Request(bytes) if bytes < head_bytes => "cut in head",
            Self::Request(_) => "cut in body",
            Self::Answer(0) => "cut before answer",
            Self::Answer(_) => "cut in answer",
            Self::Never => "not cut",
        }
    }
}

impl Client {
    async fn consume_all(mut self) -> Self {
        for consume in 0..CONSUMES_OF_EACH {
            let answer = self.insist(&format!("{}-{consume}", self.name)).await;
            self.answers.push(answer);
            self.answered.send_modify(|answers| *answers += 1);
        }
        self.connection = None;
        self
    }

    /// Repeats a consume until it is answered.
    async fn insist(&mut self, key: &str) -> RawAnswer {
        loop {
            let (head, body) = self.keyed_consume(key);
            let cut = self.cut(head.len(), body.len());
            let became = match self.attempt(&format!("{head}{body}"), cut).await {
                Err(_broken) => "broken by the server",
                Ok(None) => cut.place(head.len()),
                Ok(Some(answer)) => match answer.status {
                    200 => {
                        let replayed = answer.field("idempotency-replayed").is_some();
                        self.note(if replayed { "replayed" } else { "new" });
                        return answer;
                    }
                    503 => "unavailable",
                    _ => panic!("{answer:?}"),
                },
            };
            self.note(became);
        }
    }

    fn note(&mut self, became: &'static str) {
        *self.attempts.entry(became).or_default() += 1;
    }

    /// One attempt. No answer if the client cut it off; an error if the server did.
    async fn attempt(&mut self, request: &str, cut: Cut) -> io::Result<Option<RawAnswer>> {
        let mut connection = match self.connection.take() {
            Some(open) => open,
            None => self.connect().await,
        };
        match cut {
            Cut::Request(bytes) => connection.send(&request[..bytes]).await?,
            Cut::Answer(bytes) => {
                connection.send(request).await?;
                connection.read_part(bytes).await?;
            }
            Cut::Never => {
                connection.send(request).await?;
                let answer = connection.read().await?;
                if answer.field("connection") != Some("close") {
                    self.connection = Some(connection);
                }
                return Ok(Some(answer));
            }
        }
        // The server may be at any point of its work by now.
        let pause_us = self.chance.below(3) * self.chance.below(1_000);
        tokio::time::sleep(Duration::from_micros(pause_us.try_into().unwrap())).await;
        if self.chance.below(2) == 0 {
            // It may be closed already.
            let _closed = connection.reset();
        }
        Ok(None)
    }

    /// Connects to a server that runs, or to the next if none does.
    async fn connect(&mut self) -> Stream {
        loop {
            let mut addresses = self.addresses.borrow_and_update().clone();
            let first = self.chance.below(addresses.len());
            addresses.rotate_left(first);
            for address in addresses {
                if let Ok(open) = Stream::open(address).await {
                    return open;
                }
            }
            self.addresses.changed().await.unwrap();
        }
    }

    /// The head and the body of one unit's consume, in one of the forms that mean the same.
    fn keyed_consume(&mut self, key: &str) -> (String, &'static str) {
        let json = "Content-Type: application/json\r\n";
        let (lines, body) = match self.chance.below(4) {
            0 => (String::new(), ""),
            1 => (format!("{json}Content-Length: 2\r\n"), "{}"),
            2 => (format!("{json}Content-Length: 12\r\n"), r#"{"amount":1}"#),
            _ => (
                format!("{json}Transfer-Encoding: chunked\r\n"),
                "7\r\n{\"amoun\r\n5\r\nt\":1}\r\n0\r\n\r\n",
            ),
        };
        let lines = format!("Idempotency-Key: {key}\r\n{lines}");
        (
            request("POST", "/quotas/u/retries/consume", ADMIN, &lines),
            body,
        )
    }

    fn cut(&mut self, head_bytes: usize, body_bytes: usize) -> Cut {
        match self.chance.below(6) {
            0 => Cut::Request(self.chance.below(head_bytes)),
            1 if body_bytes > 0 => Cut::Request(head_bytes + self.chance.below(body_bytes)),
            2 => Cut::Answer(0),
            // The head of an answer alone has more bytes than this.
            3 => Cut::Answer(1 + self.chance.below(400)),
            _ => Cut::Never,
        }
    }

    /// Asks once more under each key, and compares the answers with the first ones.
    async fn is_answered_again(&mut self, address: SocketAddr) {
        let mut connection = Stream::open(address).await.unwrap();
        for consume in 0..CONSUMES_OF_EACH {
            let (head, body) = self.keyed_consume(&format!("{}-{consume}", self.name));
            connection.send(head + body).await.unwrap();
            let again = connection.read().await.unwrap();
            let first = &self.answers[consume];
            assert_eq!((again.status, &again.body), (200, &first.body));
            assert_eq!(again.field("idempotency-replayed"), Some("true"));
        }
    }
}
