//! The Redis door over TLS, with other people's clients: redis-cli and redis-py.

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
    let port = free_port(2).to_string();
    let up = Up::start(2, &["--no-demo", "--resp-tls-port", &port]);
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
    // A machine that does much beside may take some of the pipeline for overload; those are sent again.
    let program = "import sys, time, redis\n\
        db = redis.Redis.from_url(sys.argv[1], ssl_ca_certs=sys.argv[2], ssl_check_hostname=False)\n\
        left = list(range(500))\n\
        for attempt in range(50):\n\
        \x20   with db.pipeline(transaction=False) as pipe:\n\
        \x20       for i in left: pipe.set(f'k{i}', 'y' * 1000)\n\
        \x20       said = pipe.execute(raise_on_error=False)\n\
        \x20   assert all(one is True or 'BUSY' in str(one) for one in said), said\n\
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
