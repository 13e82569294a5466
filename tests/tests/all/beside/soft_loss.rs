//! Class `soft` while the network loses packets: how soon an update is at every node, and that nothing is missing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use e2e::resp::{Resp, Word};
use e2e::{Yard, net, skip};

const UPDATES: usize = 400;
/// An update begins so long after the one before, and a reader looks so often.
const EVERY: Duration = Duration::from_millis(20);
const LOOKS: Duration = Duration::from_millis(4);
/// All must be everywhere by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// Percent of packets, and within how long 99.9 % of the updates are everywhere. The goal is 300 and 600 ms; the bounds are what a
/// machine that does other work holds, links of TCP being what they are: each packet that is lost holds up what is behind it.
const RATES: [(u8, Duration); 2] = [(10, Duration::from_millis(1_500)), (30, Duration::from_secs(8))];

/// Waits until each update is read here, and tells how long after its begin that was.
fn reads(mut resp: Resp, begun: &Mutex<Vec<Instant>>, mark: &str) -> Result<Vec<Duration>, String> {
    let mut took: Vec<Option<Duration>> = vec![None; UPDATES];
    let end = Instant::now() + PATIENCE;
    while took.iter().any(Option::is_none) {
        if Instant::now() > end {
            return Err(format!("{} updates did not come", took.iter().filter(|one| one.is_none()).count()));
        }
        let moments = begun.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let open: Vec<usize> = (0..moments.len()).filter(|nth| took[*nth].is_none()).collect();
        if !open.is_empty() {
            let keys: Vec<String> = open.iter().map(|nth| format!("{mark}:{nth}")).collect();
            let words: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
            let Word::List(values) = resp.ask(&words)? else { return Err("MGET says a list".into()) };
            for (nth, value) in open.into_iter().zip(values) {
                if value == Word::Bulk(nth.to_string()) {
                    took[nth] = Some(moments[nth].elapsed());
                }
            }
        }
        std::thread::sleep(LOOKS);
    }
    Ok(took.into_iter().flatten().collect())
}

#[test]
fn updates_are_everywhere_soon_though_packets_are_lost() {
    let _turn = e2e::beside();
    match net::enter(module_path!(), "updates_are_everywhere_soon_though_packets_are_lost") {
        Ok(true) => (),
        Ok(false) => return,
        Err(why) => return skip(&why),
    }
    let yard = Yard::apart(3);
    yard.apply(1, "floor.toml", "[namespace.floor]\nclass = \"soft\"\ncopies = 1\n").good();
    let token = yard.namespace_token("floor");
    let open = |n: u8| Resp::open(yard.at(n).resp, "floor", &token).unwrap();
    for (percent, within) in RATES {
        (1..=3).for_each(|node| yard.net.as_ref().unwrap().lose(node, percent));
        let begun: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let mark = format!("loss{percent}");
        let readers: Vec<_> = [2, 3]
            .map(|n| {
                let (resp, begun, mark) = (open(n), Arc::clone(&begun), mark.clone());
                std::thread::spawn(move || reads(resp, &begun, &mark))
            })
            .into();
        let mut writer = open(1);
        for nth in 0..UPDATES {
            begun.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            let (key, value) = (format!("{mark}:{nth}"), nth.to_string());
            assert_eq!(writer.ask(&["SET", &key, &value]), Ok(Word::Simple("OK".into())));
            assert!(matches!(writer.ask(&["INCR", &mark]), Ok(Word::Int(n)) if n == nth as i64 + 1));
            std::thread::sleep(EVERY);
        }
        let took: Vec<Vec<Duration>> = readers.into_iter().map(|reader| reader.join().unwrap().unwrap()).collect();
        // Everywhere: at the later of the two.
        let mut later: Vec<Duration> = took[0].iter().zip(&took[1]).map(|(one, other)| *one.max(other)).collect();
        later.sort_unstable();
        let most = later[later.len() * 999 / 1_000];
        println!(
            "{percent} % of packets lost: half of {UPDATES} updates everywhere within {:?}, 99.9 % {most:?}",
            later[UPDATES / 2]
        );
        assert!(most <= within, "{percent} %: {most:?}, not within {within:?}");
        // The sum comes with, or after, the last of them.
        (1..=3).for_each(|node| yard.net.as_ref().unwrap().mend(node));
        for n in [2, 3] {
            let mut resp = open(n);
            e2e::wait_for("the sum is everywhere", PATIENCE, || match resp.ask(&["GET", &mark])? {
                Word::Bulk(sum) if sum == UPDATES.to_string() => Ok(()),
                other => Err(format!("{other:?}")),
            });
        }
    }
}
