//! TCP services that are asked for more than they can do: who matters more is served, a range grows, and connections that ask for
//! nothing, or for what takes long, are in nobody's way.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::at::free_port;
use e2e::tcp::{PATIENCE, ask};
use e2e::{Up, wait_for};
use serde_json::Value;

/// So many new connections a second, whatever becomes of them. Gives the part that was answered.
fn load(at: SocketAddr, rate: u32, time: Duration) -> JoinHandle<f64> {
    std::thread::spawn(move || {
        let began = Instant::now();
        let due = (0..).map(|n| began + Duration::from_secs(1) * n / rate);
        let asked: Vec<_> = due
            .take_while(|at| *at < began + time)
            .map(|due| {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                std::thread::spawn(move || ask(at).is_ok())
            })
            .collect();
        let all = asked.len() as f64;
        asked.into_iter().filter_map(|one| one.join().unwrap().then_some(1.0)).sum::<f64>() / all
    })
}

fn slow(port: u16, clones: &str, more: &str) -> String {
    let program = e2e::program::service_program("slow_tcp.py");
    format!(
        "[service.slow]\nrun = [\"python3\", {program:?}]\nclones = {clones}\ntcp = {{ port = {port} }}\n\
         env = {{ TAKES_MS = \"40\" }}\n{more}"
    )
}

fn service(up: &Up) -> Value {
    up.status(1).unwrap()["services"][0].clone()
}

#[test]
fn what_matters_more_goes_first_and_who_waits_for_something_else_is_in_nobodys_way() {
    let _turn = e2e::alone();
    let up = Up::bare(2);
    let (upper, lower) = (free_port(2), free_port(2));
    let partition = |name: &str, port: u16, priority: &str| {
        format!("[[service.slow.partition]]\nname = \"{name}\"\nport = {port}\npriority = \"{priority}\"\n")
    };
    let parts = partition("upper", upper, "critical") + &partition("lower", lower, "low");
    up.apply("slow.toml", &slow(upper, "2", &parts)).good();
    up.settle(Duration::from_secs(30), 0);
    let said = up.coppice(&["route", "explain", &format!("tcp://127.0.0.1:{lower}")]).good();
    assert!(said.contains("goes to slow, partition lower") && said.contains("priority 3"), "{said}");
    // The nodes of a cluster by `up` listen on addresses of their own.
    let at = |node: u8, port: u16| SocketAddr::new(up.at(node).http.ip(), port);
    wait_for("both ports answer", Duration::from_secs(20), || {
        [upper, lower].iter().flat_map(|port| [at(1, *port), at(2, *port)]).try_for_each(|at| ask(at).map(drop))
    });
    // Connections for later, and some that were told to wait. None takes a place for long.
    let mut idle: Vec<TcpStream> =
        (0..150).flat_map(|_| [at(1, upper), at(2, upper)]).map(|at| TcpStream::connect(at).unwrap()).collect();
    idle.iter_mut().take(150).for_each(|stream| stream.write_all(b"wait\n").unwrap());
    // Both together ask for half more than they can do, 50 a second. Measured up to three times: the machine may stand still for something else.
    let mut served = (0.0, 0.0);
    for _ in 0..3 {
        let low = load(at(2, lower), 40, Duration::from_secs(13));
        load(at(1, upper), 35, Duration::from_secs(4)).join().unwrap();
        let high = load(at(1, upper), 35, Duration::from_secs(8)).join().unwrap();
        served = (high, low.join().unwrap());
        e2e::say(&format!("served: {:.3} of the upper, {:.3} of the lower", served.0, served.1));
        if served.0 > 0.93 && (0.02..0.7).contains(&served.1) {
            break;
        }
    }
    assert!(served.0 > 0.93, "{served:?} of the upper and the lower partition were served");
    assert!((0.02..0.7).contains(&served.1), "{served:?}");
    let shown = up.coppice(&["status", "--json"]).good();
    assert!(shown.contains("stage.tcp-slow.limit"), "{shown}");
    for stream in &mut idle {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"honey\n").unwrap();
    }
    let answered = idle.into_iter().filter(|stream| {
        let mut said = String::new();
        BufReader::new(stream).read_line(&mut said).is_ok_and(|count| count > 0)
    });
    assert!(answered.count() >= 100, "they were open all the time, and asked at once");
}

#[test]
fn a_range_grows_by_how_long_connections_wait_for_their_first_answer_and_shrinks_again() {
    let _turn = e2e::alone();
    let up = Up::bare(2);
    let port = free_port(2);
    up.apply("slow.toml", &slow(port, "{ min = 1, max = 4 }", "wait = \"60ms\"\n")).good();
    up.settle(Duration::from_secs(30), 0);
    let at = [1, 2].map(|node| SocketAddr::new(up.at(node).http.ip(), port));
    wait_for("it answers", Duration::from_secs(20), || ask(at[0]).map(drop));
    let (stop, asked, failed): (Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
    let user = |at: SocketAddr| {
        let (stop, asked, failed) = (Arc::clone(&stop), Arc::clone(&asked), Arc::clone(&failed));
        std::thread::spawn(move || {
            while !stop.load(Relaxed) {
                failed.fetch_add(u64::from(ask(at).is_err()), Relaxed);
                asked.fetch_add(1, Relaxed);
            }
        })
    };
    // What an answer takes without a queue has to be seen first.
    let few = user(at[0]);
    wait_for("some answers", Duration::from_secs(30), || match asked.load(Relaxed) {
        60.. => Ok(()),
        few => Err(format!("{few} asked")),
    });
    assert_eq!(service(&up)["wanted"], 1, "one user is no burst");
    let users: Vec<_> = (0..8).map(|n| user(at[n % 2])).chain([few]).collect();
    wait_for("three clones serve", Duration::from_secs(60), || {
        let service = service(&up);
        let serving = service["clones"].as_array().unwrap().iter().filter(|c| c["state"] == "serving").count();
        if serving >= 3 { Ok(()) } else { Err(service.to_string()) }
    });
    stop.store(true, Relaxed);
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!(failed.load(Relaxed), 0, "connections failed in the burst");
    wait_for("it shrinks", Duration::from_secs(90), || {
        let wanted = service(&up)["wanted"].as_u64().unwrap();
        if wanted <= 2 { Ok(()) } else { Err(format!("{wanted} clones")) }
    });
}
