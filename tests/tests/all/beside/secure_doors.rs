//! The Redis door and the API over TLS, with other people's clients: redis-cli, redis-py, curl.

use std::process::Command;
use std::time::Duration;

use e2e::at::free_port;
use e2e::tools::{self, has, run};
use e2e::{Up, skip};

const WITHIN: Duration = Duration::from_secs(20);
const CARTS: &str = "[namespace.carts]\nclass = \"session\"\n";

#[test]
fn redis_clients_come_by_tls_and_trust_the_clusters_authority() {
    let _turn = e2e::beside();
    if !has("redis-cli") || !has("openssl") {
        return skip("redis-cli or openssl is not installed");
    }
    let (port, api) = (free_port(2).to_string(), free_port(2).to_string());
    let up = Up::start(2, &["--no-demo", "--resp-tls-port", &port, "--api-tls-port", &api]);
    up.apply("carts.toml", CARTS).good();
    assert_eq!(up.ready["nodes"][1]["resp_tls"], format!("127.0.0.2:{port}"), "{}", up.ready);
    let authority = up.dir.join("n1/ca.pem");
    let token = up.token("carts");
    let cli = |node: u8, words: &[&str]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["--tls", "--cacert"]).arg(&authority).args(["-h", &format!("127.0.0.{node}"), "-p", &port]);
        cli.args(["--user", "carts", "--pass", &token, "--no-auth-warning"]).args(words);
        run(&mut cli, WITHIN)
    };
    // The API shows the same; a node's own certificate is for its name.
    let curl = |name: &str, node: u8| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--cacert"]).arg(&authority).args(["--resolve", &format!("{name}:{api}:127.0.0.{node}")]);
        run(curl.args([&format!("https://{name}:{api}/livez"), "-w", " %{http_code}"]), WITHIN)
    };
    assert!(curl("n1", 1).good().ends_with(" 200") && curl("n2", 2).good().ends_with(" 200"));
    assert!(!curl("n2", 1).is_good(), "n1 is not n2");

    // Larger than what TLS takes at once, both ways.
    let large = "x".repeat(100_000);
    assert_eq!(cli(1, &["SET", "cart", &large]).good(), "OK\n");
    assert_eq!(cli(2, &["GET", "cart"]).good(), format!("{large}\n"));

    // Another authority than the cluster's is not believed, and who speaks no TLS gets no answer.
    let other = up.dir.join("other");
    std::fs::create_dir_all(&other).unwrap();
    tools::certificate(&other, "other.example");
    let mut stranger = Command::new("redis-cli");
    stranger.args(["--tls", "--cacert"]).arg(other.join("a.crt")).args(["-h", "127.0.0.1", "-p", &port, "PING"]);
    let said = run(&mut stranger, WITHIN);
    assert!(!said.is_good(), "{said:?}");
    let plain = run(Command::new("redis-cli").args(["-h", "127.0.0.1", "-p", &port, "PING"]), WITHIN);
    assert!(!plain.out.contains("PONG") && !plain.out.contains("NOAUTH"), "{plain:?}");

    if !has("python3") || !run(Command::new("python3").args(["-c", "import redis"]), WITHIN).is_good() {
        return skip("redis-py is not installed (python3 -m pip install redis)");
    }
    // A machine that does much beside may take some of the pipeline for overload, or not know in time what became of one;
    // those are sent again: a SET done twice is done.
    let program = "import sys, time, redis\n\
        db = redis.Redis.from_url(sys.argv[1], ssl_ca_certs=sys.argv[2], ssl_check_hostname=False)\n\
        left = list(range(500))\n\
        for attempt in range(50):\n\
        \x20   with db.pipeline(transaction=False) as pipe:\n\
        \x20       for i in left: pipe.set(f'k{i}', 'y' * 1000)\n\
        \x20       said = pipe.execute(raise_on_error=False)\n\
        \x20   assert all(one is True or str(one)[:4] in ('BUSY', 'UNKN') for one in said), [str(one) for one in said if one is not True][:3]\n\
        \x20   left = [i for i, one in zip(left, said) if one is not True]\n\
        \x20   if not left: break\n\
        \x20   time.sleep(0.2)\n\
        got = db.mget([f'k{i}' for i in range(500)])\n\
        assert got == [b'y' * 1000] * 500, got[:3]\n\
        print('is content')";
    let url = format!("rediss://carts:{token}@127.0.0.1:{port}");
    let said = run(Command::new("python3").args(["-c", program, &url]).arg(&authority), WITHIN).good();
    assert!(said.contains("is content"), "{said}");
}

#[test]
fn the_api_comes_by_tls_with_the_edges_certificates_for_curl_and_for_the_commands() {
    let _turn = e2e::beside();
    if !has("curl") || !has("openssl") {
        return skip("curl or openssl is not installed");
    }
    let folder = e2e::at::new_folder();
    let ca = tools::signed(&folder, &["localhost", "api.example.test"]);
    let (https, port) = (free_port(2).to_string(), free_port(2).to_string());
    let files = folder.join("files").display().to_string();
    let up = Up::start(2, &["--no-demo", "--tls-dir", &files, "--https-port", &https, "--api-tls-port", &port]);
    assert_eq!(up.ready["nodes"][1]["api_tls"], format!("127.0.0.2:{port}"), "{}", up.ready);
    let curl = |name: &str, more: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--cacert"]).arg(&ca).args(["--resolve", &format!("{name}:{port}:127.0.0.1")]).args(more);
        run(curl.args([&format!("https://{name}:{port}/v1/status"), "-o", "/dev/null", "-w", "%{http_code}"]), WITHIN)
    };
    assert_eq!(curl("localhost", &[]).good(), "200");
    assert_eq!(curl("api.example.test", &[]).good(), "200", "a name of the certificate is the node's");
    assert_eq!(curl("localhost", &["-H", "Host: evil.example"]).good(), "403");
    assert!(!curl("n1", &[]).is_good(), "the certificate is for other names");
    let plain = |at: &str, host: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-H", &format!("Host: {host}"), &format!("http://{at}/livez"), "-o", "/dev/null"]);
        run(curl.args(["-w", "%{http_code}"]), WITHIN)
    };
    assert_eq!(plain(&up.at(1).api.to_string(), "api.example.test").good(), "403", "without TLS it is anybody's name");
    assert!(!plain(&format!("127.0.0.1:{port}"), "localhost").is_good(), "who speaks no TLS gets no answer");

    let url = format!("https://localhost:{port}");
    let coppice = |args: &[&str], ca: &std::path::Path| {
        let mut command = Command::new(e2e::program::coppice());
        command.args(args).args(["--api", &url, "--dir"]).arg(&up.dir).arg("--ca").arg(ca);
        run(&mut command, WITHIN)
    };
    let carts = up.write("carts.toml", CARTS).display().to_string();
    coppice(&["apply", "-f", &carts], &ca).good();
    assert!(coppice(&["status"], &ca).good().contains("carts"));
    // That asks the other node, too.
    assert!(coppice(&["events"], &ca).good().contains("n2"));
    let stranger = coppice(&["status"], &up.dir.join("n1/ca.pem"));
    assert!(!stranger.is_good() && stranger.err.contains("cannot reach the node at https://localhost"), "{stranger:?}");
    std::fs::remove_dir_all(folder).unwrap();
}
