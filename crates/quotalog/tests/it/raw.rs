//! Bytes that no tidy client sends, straight to the socket.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::faults::{at_another_time, other_clocks};
use crate::support::answer::Answer;
use crate::support::raw::{RawAnswer, RawConnection, request};
use crate::support::server::{ADMIN, Server, Site, skipped};

const JSON: &str = "Content-Type: application/json\r\n";
const PAIR: &str = "/quotas/u/r";
const CONSUME: &str = "/quotas/u/r/consume";

/// A server with a policy of a million a day for u/r and bob/r.
async fn server(site: &Site) -> Server {
    let server = site.serve();
    server.set(PAIR, "daily", 1_000_000).await;
    server.set("/quotas/bob/r", "daily", 1_000_000).await;
    server
}

/// A request with a body of a known length.
fn with_body(method: &str, path: &str, token: &str, body: &[u8]) -> Vec<u8> {
    let lines = format!("{JSON}Content-Length: {}\r\n", body.len());
    [request(method, path, token, &lines).as_bytes(), body].concat()
}

fn ask(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Option<RawAnswer> {
    let mut connection = RawConnection::open(address);
    connection.send(bytes);
    connection.read()
}

/// The server serves others as before, and nothing of `user_id`'s was counted.
async fn unharmed(server: &Server, site: &Site, user_id: &str) {
    server.call(Method::GET, "/readyz", "").await.is(200);
    assert!(site.stored(user_id, "r").is_empty());
}

#[tokio::test]
async fn a_path_or_body_that_is_no_text_is_malformed() {
    let site = Site::new();
    let server = server(&site).await;
    let malformed = |bytes: Vec<u8>| {
        let answer = ask(server.address, bytes).unwrap().is(400);
        assert_eq!(answer.json()["type"], "/problems/malformed-request");
    };
    for path in [
        "/quotas/%FF/r",
        "/quotas/u/%",
        "/quotas/u/%ZZ",
        "/quotas/%C3%28/r",
        "/quotas/u/%8",
    ] {
        malformed(request("GET", path, ADMIN, "").into());
        malformed(request("POST", &format!("{path}/consume"), ADMIN, "").into());
        malformed(with_body(
            "PUT",
            path,
            ADMIN,
            br#"{"window":"daily","limit_count":5}"#,
        ));
    }
    let utf_16: Vec<u8> = r#"{"amount":1}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let bodies: [&[u8]; 8] = [
        b"\xef\xbb\xbf{\"amount\":1}",
        b"{\"amount\":1,\"x\":\"\xff\"}",
        b"{\"amount\":1,\"x\":\"\xc3\x28\"}",
        br#"{"amount":1,"x":"\ud800"}"#,
        &utf_16,
        b"\x00",
        b" ",
        b"{\"amount\":1}\x00",
    ];
    for body in bodies {
        malformed(with_body("POST", CONSUME, ADMIN, body));
        malformed(with_body("PUT", PAIR, ADMIN, body));
    }
    // Such bytes are no request at all.
    let raw = b"GET /quotas/\xff/r HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(ask(server.address, raw).is_none_or(|answer| answer.status == 400));
    unharmed(&server, &site, "u").await;
}

#[tokio::test]
async fn dot_segments_and_doubled_slashes_lead_to_nobody_elses_quota() {
    let site = Site::new();
    let server = server(&site).await;
    let alice = site.token(&["--role", "user", "--user-id", "alice"]);
    server.set("/quotas/alice/r", "daily", 1_000_000).await;
    for path in [
        "/quotas/alice/../bob/r/consume",
        "/quotas/alice/%2e%2e/bob/r/consume",
        "/quotas/alice/%2E%2E/bob/r/consume",
        "//quotas/bob/r/consume",
        "/./quotas/bob/r/consume",
        "/quotas//bob/r/consume",
        "/quotas/bob//r/consume",
        "/quotas/alice%2F..%2Fbob/r/consume",
        "/quotas/alice/r/../../bob/r/consume",
        "/quotas/alice/..%2Fbob%2Fr/consume",
        "/quotas/../quotas/bob/r/consume",
        "/quotas/bob/r/consume/",
        "/quotas/bob/r/consume#x",
        "/quotas/bob/r\\consume",
        "http://localhost/quotas/bob/r/consume",
        "quotas/bob/r/consume",
        "*",
    ] {
        let answer = ask(server.address, request("POST", path, &alice, ""));
        let refused = answer.is_none_or(|answer| (400..500).contains(&answer.status));
        assert!(refused, "{path}");
    }
    assert!(site.stored("alice", "r").is_empty());
    unharmed(&server, &site, "bob").await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_whole_and_the_connection_goes_on() {
    let site = Site::new();
    let server = server(&site).await;
    for bytes in [17 * 1024, 3_000_000] {
        let mut connection = RawConnection::open(server.address);
        assert!(connection.send(with_body("PUT", PAIR, ADMIN, &vec![b' '; bytes])));
        let answer = connection.read().unwrap().is(413);
        assert_eq!(answer.json()["type"], "/problems/content-too-large");
        connection.send(request("GET", PAIR, ADMIN, ""));
        connection.read().unwrap().is(200);

        // Of no announced length.
        let chunked = format!("{JSON}Transfer-Encoding: chunked\r\n");
        connection.send(request("PUT", PAIR, ADMIN, &chunked));
        for _ in 0..bytes / 1000 {
            connection.send(format!("3e8\r\n{}\r\n", " ".repeat(1000)));
        }
        connection.send("0\r\n\r\n");
        connection.read().unwrap().is(413);
        connection.send(request("GET", PAIR, ADMIN, ""));
        connection.read().unwrap().is(200);
    }
    // Without a token the size is not judged, and the body is no trouble either.
    let mut connection = RawConnection::open(server.address);
    connection.send(with_body("PUT", PAIR, "nobody", &vec![b' '; 3_000_000]));
    connection.read().unwrap().is(401);
    connection.send(request("GET", PAIR, ADMIN, ""));
    connection.read().unwrap().is(200);
    // One that nobody would read to its end closes its connection, and that alone.
    let lines = format!("{JSON}Content-Length: 99999999999\r\n");
    let answer = ask(server.address, request("PUT", PAIR, ADMIN, &lines));
    let answer = answer.unwrap().is(413);
    assert_eq!(answer.field("connection"), Some("close"));
    unharmed(&server, &site, "u").await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let site = Site::new();
    let server = server(&site).await;
    let mut connection = RawConnection::open(server.address);
    let mut requests = Vec::new();
    for call in 0..20 {
        let body: &[u8] = if call % 2 == 0 {
            br#"{"amount":2}"#
        } else {
            b"{"
        };
        requests.extend(with_body("POST", CONSUME, ADMIN, body));
    }
    requests.extend(request("GET", PAIR, ADMIN, "Connection: close\r\n").into_bytes());
    connection.send(requests);
    let mut before: Option<(String, u64)> = None;
    for call in 0..20 {
        let answer = connection.read().unwrap();
        if call % 2 == 1 {
            answer.is(400);
            continue;
        }
        let quota = answer.is(200).json();
        let here = (
            quota["window_start"].to_string(),
            quota["usage"].as_u64().unwrap(),
        );
        if let Some((window_start, usage)) = before
            && window_start == here.0
        {
            assert_eq!(here.1, usage + 2);
        }
        before = Some(here);
    }
    connection.read().unwrap().is(200);
    connection.is_closed();
}

#[tokio::test]
async fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let site = Site::new();
    let server = server(&site).await;
    let mut connection = RawConnection::open(server.address);
    let expecting = |length: usize| {
        let lines = format!("{JSON}Expect: 100-continue\r\nContent-Length: {length}\r\n");
        request("POST", CONSUME, ADMIN, &lines)
    };
    connection.send(expecting(12));
    assert_eq!(connection.read().unwrap().status, 100);
    connection.send(r#"{"amount":3}"#);
    assert_eq!(connection.read().unwrap().is(200).json()["usage"], 3);
    // Of a body that would be refused, it is told at once.
    connection.send(expecting(100_000));
    let answer = connection.read().unwrap().is(413);
    assert_eq!(answer.field("connection"), Some("close"));
    connection.is_closed();
}

#[tokio::test]
async fn garbage_ends_its_own_connection_alone() {
    let site = Site::new();
    let server = server(&site).await;
    let mut good = RawConnection::open(server.address);
    good.send(request("GET", PAIR, ADMIN, ""));
    good.read().unwrap().is(200);
    let long_line = format!("X-Long: {}\r\n", "x".repeat(100_000));
    let many_lines = "X-Many: x\r\n".repeat(500);
    let garbage: [&[u8]; 12] = [
        b"\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello \r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /quotas/u/r/consume HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /quotas/u/r/consume HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /quotas/u/r/consume HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /quotas/u/r HTTP/1.1\r\nAuthorization : Bearer x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nthis is no frame at all, is it?",
        request("GET", PAIR, ADMIN, &long_line).leak().as_bytes(),
        request("GET", PAIR, ADMIN, &many_lines).leak().as_bytes(),
    ];
    for bytes in garbage {
        let mut connection = RawConnection::open(server.address);
        connection.send(bytes);
        connection.send_no_more();
        if bytes.starts_with(b"PRI") {
            continue;
        }
        let answer = connection.read();
        let refused = answer
            .as_ref()
            .is_none_or(|answer| (400..500).contains(&answer.status));
        assert!(refused, "{:?}: {answer:?}", String::from_utf8_lossy(bytes));
    }
    good.send(request("GET", PAIR, ADMIN, ""));
    good.read().unwrap().is(200);
    unharmed(&server, &site, "u").await;
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());
}

#[tokio::test]
async fn http_1_0_is_answered() {
    let site = Site::new();
    let server = server(&site).await;
    let mut connection = RawConnection::open(server.address);
    connection.send(format!(
        "GET {PAIR} HTTP/1.0\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
    ));
    connection.read().unwrap().is(200);
    connection.is_closed();
    let mut connection = RawConnection::open(server.address);
    for _ in 0..2 {
        let lines = "Connection: keep-alive\r\nContent-Length: 0\r\n";
        connection.send(format!(
            "POST {CONSUME} HTTP/1.0\r\nAuthorization: Bearer {ADMIN}\r\n{lines}\r\n"
        ));
        connection.read().unwrap().is(200);
    }
}

#[tokio::test]
async fn http_2_is_spoken_to_those_who_begin_with_it() {
    let site = Site::new();
    let server = server(&site).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let running = tokio::spawn(connection);
    // All at once, on the one connection.
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let request = Request::post(format!("http://localhost{CONSUME}"))
                    .header("authorization", format!("Bearer {ADMIN}"))
                    .header("content-type", "application/json")
                    .body(Full::new(Bytes::from_static(br#"{"amount":2}"#)))
                    .unwrap();
                let response = sender.send_request(request).await.unwrap();
                Answer::read(response).await.unwrap().is(200).window_start()
            })
        })
        .collect();
    let mut granted = std::collections::BTreeMap::new();
    for call in calls {
        *granted.entry(call.await.unwrap()).or_insert(0) += 2;
    }
    assert_eq!(site.stored("u", "r"), granted);
    // An orderly end closes such a connection too.
    server.signal("TERM");
    assert_eq!(server.ended().await.code(), Some(0));
    assert!(running.await.unwrap().is_ok());
}

/// A frame of HTTP/2 (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[..], &[kind, flags], &stream.to_be_bytes()];
    [&head.concat(), payload].concat()
}

/// As a proxy does that was kept waiting: it gives up what it asked, and asks anew.
#[tokio::test]
async fn many_requests_given_up_at_once_end_no_other_on_their_connection() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    const END_STREAM_AND_HEADERS: u8 = 5;
    const CANCEL: [u8; 4] = 8_u32.to_be_bytes();
    let site = Site::new();
    let server = server(&site).await;
    // GET http /healthz of the authority `q`, with indices of the table that everybody has (RFC 7541 appendix A).
    let head = b"\x82\x86\x04\x08/healthz\x01\x01q";
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    for stream in (1..600).step_by(2) {
        bytes.extend(frame(HEADERS, END_STREAM_AND_HEADERS, stream, head));
        bytes.extend(frame(RST_STREAM, 0, stream, &CANCEL));
    }
    bytes.extend(frame(HEADERS, END_STREAM_AND_HEADERS, 601, head));
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(&bytes).await.unwrap();
    loop {
        let mut head = [0; 9];
        connection.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, _flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        connection.read_exact(&mut payload).await.unwrap();
        assert_ne!(kind, GOAWAY, "{}", payload.escape_ascii());
        if kind == HEADERS && u32::from_be_bytes(stream) == 601 {
            // Its first field is `:status: 200`.
            assert_eq!(payload.first(), Some(&0x88));
            break;
        }
    }
}

#[tokio::test]
async fn a_chunked_body_counts_as_what_it_holds() {
    let site = Site::new();
    let server = server(&site).await;
    server.set(PAIR, "daily", 100).await;
    let chunked = |lines: &str, body: &str| {
        let lines = format!("{lines}Transfer-Encoding: chunked\r\n");
        ask(
            server.address,
            request("POST", CONSUME, ADMIN, &lines) + body,
        )
    };
    let remaining = |answer: Option<RawAnswer>| {
        let quota = answer.unwrap().is(200).json();
        (
            quota["window_start"].to_string(),
            quota["remaining"].as_u64().unwrap(),
        )
    };
    // No bytes are no body, with or without a type: one unit each.
    let answers = [
        (1, remaining(chunked("", "0\r\n\r\n"))),
        (
            1,
            remaining(chunked("Content-Type: text/plain\r\n", "0\r\n\r\n")),
        ),
        (1, remaining(chunked(JSON, "0;a=b\r\nTrailer: x\r\n\r\n"))),
        (
            3,
            remaining(chunked(JSON, "5\r\n{\"amo\r\n7\r\nunt\":3}\r\n0\r\n\r\n")),
        ),
    ];
    for pair in answers.windows(2) {
        let ((_, (before_window, before)), (amount, (window, left))) = (&pair[0], &pair[1]);
        if before_window == window {
            assert_eq!(before - amount, *left);
        }
    }
    let counted = site.stored("u", "r");
    // One byte needs a type; what is cut short or broken is no body.
    chunked("", "2\r\n{}\r\n0\r\n\r\n").unwrap().is(415);
    for broken in [
        "zz\r\n{}\r\n0\r\n\r\n",
        "-1\r\n",
        "ffffffffffffffffff\r\n{}",
    ] {
        let answer = chunked(JSON, broken);
        assert!(
            answer.is_none_or(|answer| answer.status == 400),
            "{broken:?}"
        );
    }
    let mut cut = RawConnection::open(server.address);
    let lines = format!("{JSON}Content-Length: 12\r\n");
    cut.send(request("POST", CONSUME, ADMIN, &lines) + r#"{"amount":"#);
    cut.send_no_more();
    assert!(cut.read().is_none_or(|answer| answer.status == 400));
    assert_eq!(site.stored("u", "r"), counted);
}

#[tokio::test]
async fn a_request_with_two_lengths_is_not_read_as_two_requests() {
    let site = Site::new();
    let server = server(&site).await;
    // To one reader the second consume is the body of the first, to another a request.
    let inner = request("POST", "/quotas/bob/r/consume", ADMIN, "");
    let lines = format!(
        "{JSON}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n",
        5 + inner.len()
    );
    let mut connection = RawConnection::open(server.address);
    connection.send(request("POST", CONSUME, "nobody", &lines) + "0\r\n\r\n" + &inner);
    let mut answers = Vec::new();
    connection.send_no_more();
    while let Some(answer) = connection.read() {
        answers.push(answer.status);
    }
    assert!(
        answers.iter().all(|status| (400..500).contains(status)),
        "{answers:?}"
    );
    unharmed(&server, &site, "bob").await;
}

#[tokio::test]
async fn a_message_that_could_be_read_in_two_ways_is_malformed_whatever_its_route() {
    let site = Site::new();
    let server = server(&site).await;
    let authorization = format!("Authorization: Bearer {ADMIN}\r\n");
    for target in [
        format!("POST {CONSUME}"),
        "DELETE /healthz".to_owned(),
        "GET /nowhere".to_owned(),
        format!("POST http://localhost{CONSUME}"),
    ] {
        for (lines, body) in [
            ("", ""),
            ("Host: localhost\r\nHost: localhost\r\n", ""),
            ("Host: localhost\r\nHost: elsewhere\r\n", ""),
            (
                "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n",
                "0\r\n\r\n",
            ),
            (
                "Host: a\r\nTransfer-Encoding: chunked, chunked\r\n",
                "0\r\n\r\n",
            ),
            (
                "Host: a\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
                "0\r\n\r\n",
            ),
        ] {
            let mut connection = RawConnection::open(server.address);
            connection.send(format!(
                "{target} HTTP/1.1\r\n{authorization}{lines}\r\n{body}"
            ));
            let answer = connection.read().unwrap().is(400);
            assert_eq!(answer.json()["type"], "/problems/malformed-request");
            assert!(answer.field("x-request-id").is_some());
            assert_eq!(answer.field("connection"), Some("close"));
            connection.is_closed();
        }
    }
    unharmed(&server, &site, "u").await;
}

#[tokio::test]
async fn a_clock_that_http_dates_were_not_made_for_harms_no_connection() {
    let Some(library) = other_clocks() else {
        return skipped("there is no libfaketime (package faketime)");
    };
    for (offset, century) in [("-30000d", "19"), ("-150000d", "16"), ("+3000000d", "99")] {
        let site = Site::new();
        // The file's own making is another matter.
        site.serve().stop();
        let server = site.serve_with(|command| at_another_time(command, &library, offset));
        server.set(PAIR, "daily", 5).await;
        server.call(Method::GET, "/readyz", "").await.is(200);
        let mut connection = RawConnection::open(server.address);
        for usage in 1..=5 {
            connection.send(request("POST", CONSUME, ADMIN, ""));
            let answer = connection.read().unwrap().is(200);
            assert_eq!(answer.field("date").unwrap().len(), 29);
            let quota = answer.json();
            assert_eq!(quota["usage"], usage);
            let window_start = quota["window_start"].as_str().unwrap();
            assert!(window_start.starts_with(century), "{window_start}");
        }
        assert!(!site.log().contains("panicked"), "{}", site.log());
        assert_eq!(server.stop().code(), Some(0));
    }
}

#[tokio::test]
async fn two_authorization_lines_are_none() {
    let site = Site::new();
    let server = server(&site).await;
    for second in [ADMIN, "nobody"] {
        let lines = format!("Authorization: Bearer {second}\r\n");
        let answer = ask(server.address, request("POST", CONSUME, ADMIN, &lines));
        let answer = answer.unwrap().is(401);
        assert_eq!(answer.field("www-authenticate"), Some("Bearer"));
        assert_eq!(answer.json()["type"], "/problems/unauthorized");
    }
    unharmed(&server, &site, "u").await;
}

#[tokio::test]
async fn slow_half_requests_disturb_nobody() {
    let site = Site::new();
    let server = site.serve_with(|command| command.env("QUOTALOG_HEAD_TIMEOUT", "1d"));
    server.set(PAIR, "daily", 1_000_000).await;
    let whole = with_body("POST", CONSUME, ADMIN, br#"{"amount":2}"#);
    // Cut in the method, the head, and the body.
    let mut halves = Vec::new();
    for cut in [0, 3, 40, whole.len() - 4].repeat(40) {
        let mut half = RawConnection::open(server.address);
        half.send(&whole[..cut]);
        halves.push((half, cut));
    }
    let mut granted = std::collections::BTreeMap::new();
    let mut connection = server.connect().await;
    for _ in 0..100 {
        let answer = connection.call(Method::POST, CONSUME, ADMIN, "").await;
        *granted
            .entry(answer.unwrap().is(200).window_start())
            .or_insert(0) += 1;
    }
    assert_eq!(site.stored("u", "r"), granted);
    // And each goes on where it was.
    for (half, cut) in &mut halves {
        half.send(&whole[*cut..]);
        let quota = half.read().unwrap().is(200).json();
        let window_start = quota["window_start"].as_str().unwrap().to_owned();
        *granted.entry(window_start).or_insert(0) += 2;
    }
    assert_eq!(site.stored("u", "r"), granted);
}

#[tokio::test]
async fn a_client_that_leaves_before_its_answer_takes_nothing_with_it() {
    let site = Site::new();
    let server = server(&site).await;
    for _ in 0..50 {
        let mut connection = RawConnection::open(server.address);
        connection.send(request("POST", CONSUME, ADMIN, ""));
    }
    let mut connection = server.connect().await;
    let answer = connection.call(Method::POST, CONSUME, ADMIN, "").await;
    answer.unwrap().is(200);
    let usage: u64 = site.stored("u", "r").values().sum();
    assert!((1..=51).contains(&usage), "{usage}");
    assert!(!site.log().contains(" ERROR quotalog"), "{}", site.log());
}
