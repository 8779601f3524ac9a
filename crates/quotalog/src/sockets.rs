//! The sockets: the one that listens, and how many connections the system allows.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, lookup_host};

use crate::config::Listen;
use crate::exit_code::{Exit, Failure};

/// How many connections may wait to be accepted; the system may allow fewer.
const BACKLOG: u32 = 4096;

/// How many files are kept free for the database, the certificate, the runtime and whoever looks in.
const FILES_KEPT_FREE: u64 = 64;

/// Listens on the first of the address's addresses that can be had.
pub(crate) async fn listen(listen: &Listen) -> anyhow::Result<TcpListener> {
    let Listen {
        address,
        flag,
        variable,
    } = listen;
    try_listen(address).await.map_err(|error| {
        let message = format!(
            "cannot listen on {address:?}: {error}; choose another address with {flag} ({variable})"
        );
        Failure::error(Exit::Failure, message)
    })
}

async fn try_listen(address: &str) -> io::Result<TcpListener> {
    let mut failure = io::Error::other("the name has no address");
    for address in lookup_host(address).await? {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        };
        let listening = socket.and_then(|socket| {
            // So that a restart need not wait for the connections of before to be forgotten.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        });
        match listening {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// As many of the wanted connections as the system has files for, on each of the listeners. Raises its limit as far
/// as it may.
pub(crate) fn connections_max(wanted: usize, listeners: usize) -> usize {
    let wanted_files = u64::try_from(wanted.saturating_mul(listeners))
        .unwrap_or(u64::MAX)
        .saturating_add(FILES_KEPT_FREE);
    let files = raise_files_max(wanted_files);
    let possible = (connections_of(files) / listeners).max(1);
    if possible >= wanted {
        return wanted;
    }
    tracing::warn!(
        connections_max = possible,
        wanted,
        files_max = files,
        "the limit of open files leaves fewer connections than --connections-max \
         (QUOTALOG_CONNECTIONS_MAX); raise it, such as with LimitNOFILE= or ulimit -n"
    );
    possible
}

/// How many files may be open, once the limit is raised to what is wanted or as far as it goes.
fn raise_files_max(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let current = current.unwrap_or(u64::MAX);
    let raised = wanted.min(maximum.unwrap_or(u64::MAX));
    if raised <= current {
        return current;
    }
    let limit = Rlimit {
        current: Some(raised),
        maximum,
    };
    match setrlimit(Resource::Nofile, limit) {
        Ok(()) => raised,
        Err(_refused) => current,
    }
}

/// How many connections so many files are enough for; where there are next to none, half of them.
fn connections_of(files: u64) -> usize {
    let connections = files.saturating_sub(FILES_KEPT_FREE).max(files / 2).max(1);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_kept_free() {
        let table = [(0, 1), (1, 1), (64, 32), (128, 64), (1_024, 960)];
        for (files, connections) in table {
            assert_eq!(connections_of(files), connections, "{files}");
        }
    }
}
