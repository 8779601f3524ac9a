//! The hosts of a URL, each by itself, so that each has its own time to let us in. The driver gives all of it to the
//! first of them that takes a connection and says nothing.

use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};

/// What connects to each of the hosts, in their order. If that is for the driver to choose, or if the URL is at odds with
/// itself, as the driver will say, it stays as it is.
pub(crate) fn each_of(url: &Config) -> Vec<Config> {
    let (names, addresses) = (url.get_hosts().len(), url.get_hostaddrs().len());
    let (len, ports) = (names.max(addresses), url.get_ports().len());
    let is_at_odds =
        (names > 0 && addresses > 0 && names != addresses) || (ports > 1 && ports != len);
    if is_at_odds || len < 2 || url.get_load_balance_hosts() != LoadBalanceHosts::Disable {
        return vec![url.clone()];
    }
    (0..len).map(|place| only(url, place)).collect()
}

/// The same with the host at this place alone.
fn only(url: &Config, place: usize) -> Config {
    let mut config = Config::new();
    match url.get_hosts().get(place) {
        Some(Host::Tcp(name)) => drop(config.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(path)) => drop(config.host_path(path)),
        None => {}
    }
    if let Some(address) = url.get_hostaddrs().get(place) {
        config.hostaddr(*address);
    }
    let ports = url.get_ports();
    if let Some(port) = ports.get(place).or_else(|| ports.first()) {
        config.port(*port);
    }
    if let Some(user) = url.get_user() {
        config.user(user);
    }
    if let Some(password) = url.get_password() {
        config.password(password);
    }
    if let Some(name) = url.get_dbname() {
        config.dbname(name);
    }
    if let Some(options) = url.get_options() {
        config.options(options);
    }
    if let Some(name) = url.get_application_name() {
        config.application_name(name);
    }
    if let Some(timeout) = url.get_connect_timeout() {
        config.connect_timeout(*timeout);
    }
    if let Some(timeout) = url.get_tcp_user_timeout() {
        config.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = url.get_keepalives_interval() {
        config.keepalives_interval(interval);
    }
    if let Some(retries) = url.get_keepalives_retries() {
        config.keepalives_retries(retries);
    }
    config
        .ssl_mode(url.get_ssl_mode())
        .ssl_negotiation(url.get_ssl_negotiation())
        .keepalives(url.get_keepalives())
        .keepalives_idle(url.get_keepalives_idle())
        .target_session_attrs(url.get_target_session_attrs())
        .channel_binding(url.get_channel_binding());
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Config {
        url.parse().expect("a URL")
    }

    #[test]
    fn each_host_keeps_all_that_is_said_of_all() {
        let rest = "connect_timeout=3&tcp_user_timeout=4&keepalives=1&keepalives_idle=5&keepalives_interval=6&\
                    keepalives_retries=7&application_name=n&options=-c%20geqo=off&sslmode=require&\
                    target_session_attrs=read-write&channel_binding=disable";
        let url = parsed(&format!("postgres://u:p@a:1,b:2,%2Frun/q?{rest}"));
        let each = [
            format!("postgres://u:p@a:1/q?{rest}"),
            format!("postgres://u:p@b:2/q?{rest}"),
            format!("postgres://u:p@%2Frun/q?{rest}"),
        ];
        assert_eq!(each_of(&url), each.map(|url| parsed(&url)));
        let url = parsed("host=a,b hostaddr=10.0.0.1,10.0.0.2 port=7 user=u");
        let each = [
            "host=a hostaddr=10.0.0.1 port=7 user=u",
            "host=b hostaddr=10.0.0.2 port=7 user=u",
        ];
        assert_eq!(each_of(&url), each.map(parsed));
    }

    #[test]
    fn what_is_for_the_driver_to_choose_or_to_refuse_stays() {
        for url in [
            "host=a user=u",
            "host=a,b port=1,2,3",
            "host=a,b load_balance_hosts=random",
            "host=a,b hostaddr=10.0.0.1",
        ] {
            assert_eq!(each_of(&parsed(url)), [parsed(url)]);
        }
    }
}
