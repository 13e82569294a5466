//! Certificates that come by themselves: whoever leads the root group asks for what is declared and due, one after the other, and gives
//! the result to the root group, from where all nodes have it. A leader that ends in mid-order leaves nothing behind that matters:
//! the next one asks anew, with the same account. How long is waited after a failure is kept in the root group, too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base::{Outcome, Rng, Span};
use clones::Challenge;
use edge::acme::jws::AccountKey;
use edge::acme::{Failed, Shows, Wish, obtain};
use host::Port;
use node::acme::{Account, Proofs, Wanted};
use node::certificates::Deed;
use node::{Answer, Ask, Certificate, Door, Node, View};

use crate::found::random_bytes;
use crate::operate::now_ms;

/// How often it is looked whether something is due.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What is declared, the account, and what proves names are at all nodes by then: a directory may ask any of them for an answer.
const SPREAD_WITHIN: Duration = Duration::from_secs(2);
/// After the first failure; each further one doubles it.
const AGAIN_FIRST_MS: u64 = 60_000;
/// A directory that is away, or a name that leads elsewhere, is looked at some times a day.
const AGAIN_MAX_MS: u64 = 6 * 3_600_000;
/// A directory is believed that says to come again later, up to a week.
const AFTER_MAX_MS: u64 = 7 * 86_400_000;
const ASK_WITHIN: Span = Span::secs(10);

/// Asks for as long as the node lives.
pub async fn follow(port: Port<Node>, mut rng: Rng) {
    // Since when what is declared has been seen so, and until when a failure keeps it waiting that could not be told to others.
    // What is declared anew (another mark) waits for no failure of what it was.
    let mut seen = BTreeMap::<String, (String, Instant)>::new();
    let mut held = BTreeMap::<(String, String), Instant>::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let view = port.view();
        if !leads(&view) || view.acme.wanted.is_empty() {
            seen.clear();
            continue;
        }
        let Some(account) = view.acme.account.clone() else {
            if let Err(why) = make_account(&port).await {
                tracing::warn!(%why, "there is no account to ask for certificates with");
                tokio::time::sleep(SPREAD_WITHIN).await;
            }
            seen.clear();
            continue;
        };
        seen.retain(|name, (mark, _)| view.acme.wanted.get(name).is_some_and(|wanted| wanted.mark == *mark));
        held.retain(|_, until| *until > Instant::now());
        let mut due = None;
        for (name, wanted) in &view.acme.wanted {
            let (_, since) = seen.entry(name.clone()).or_insert_with(|| (wanted.mark.clone(), Instant::now()));
            let is_held = held.contains_key(&(name.clone(), wanted.mark.clone()));
            let is_due = since.elapsed() >= SPREAD_WITHIN && !is_held && due_ms(name, wanted) <= now_ms();
            due = due.or(is_due.then_some((name, wanted)));
        }
        let Some((name, wanted)) = due else { continue };
        let this = (name.clone(), wanted.mark.clone());
        let outcome = tokio::select! {
            outcome = order(&port, name, wanted, &account) => outcome,
            () = leads_no_more(&port) => {
                tracing::info!(name, "another node leads: it asks for this certificate");
                continue;
            }
        };
        let told = match outcome {
            Ok(certificate) => issued(&port, name, wanted, certificate).await,
            Err(failed) => {
                let tries = wanted.trouble.as_ref().map_or(0, |trouble| trouble.tries);
                let wait_ms = wait_ms(tries, failed.after, &mut rng);
                held.insert(this.clone(), Instant::now() + Duration::from_millis(wait_ms));
                tracing::warn!(name, why = %failed, wait_s = wait_ms / 1000, "a certificate cannot be had");
                let deed = Deed::Failed { name: name.clone(), mark: wanted.mark.clone(), why: failed.why, wait_ms };
                done(&port, deed).await
            }
        };
        if let Err(why) = told {
            // It is asked for again; not at once, as directories count.
            held.entry(this).or_insert_with(|| Instant::now() + Duration::from_millis(AGAIN_FIRST_MS));
            tracing::warn!(name, %why, "what became of a certificate is not kept");
        }
    }
}

fn leads(view: &View) -> bool {
    view.root.leader.as_ref() == Some(&view.me)
}

async fn leads_no_more(port: &Port<Node>) {
    let mut views = port.watch();
    // The node has stopped: nobody asks any more.
    let _ = views.wait_for(|view| !leads(view)).await;
}

/// When one is to be asked for; milliseconds since 1970.
fn due_ms(name: &str, wanted: &Wanted) -> u64 {
    match (&wanted.trouble, wanted.has) {
        (Some(trouble), _) => trouble.next_at_ms,
        (None, None) => 0,
        // At two thirds of its life; a cluster of many not all at once, and each at the same moment whoever leads.
        (None, Some((begins, ends))) => {
            let life = ends.saturating_sub(begins);
            let spread = base::checksum::place_hash(format!("{name} {begins}").as_bytes()) % (life / 24).max(1);
            begins + life / 3 * 2 + spread
        }
    }
}

fn wait_ms(tries: u32, after: Option<Duration>, rng: &mut Rng) -> u64 {
    let wait = AGAIN_FIRST_MS.saturating_mul(1 << tries.min(16)).min(AGAIN_MAX_MS);
    let wait = wait - wait / 5 + rng.between(0, wait / 5 * 2);
    let after = after.map_or(0, |after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).min(AFTER_MAX_MS));
    wait.max(after)
}

/// How names are shown to be ours, in the order in which it is tried. Over TLS only where all nodes know how, and one has such a door.
fn ways(spec: &clones::CertificateSpec, view: &View) -> Vec<Challenge> {
    let over_tls = view.root.level >= clones::LEVEL_CHALLENGES
        && view.nodes.iter().any(|node| node.doors.get(Door::Https).is_some());
    let is_possible = |way: &Challenge| match way {
        Challenge::Http01 => true,
        Challenge::TlsAlpn01 => over_tls,
    };
    let all = || Challenge::ALL.into_iter().filter(is_possible).collect();
    spec.challenge.map_or_else(all, |way| vec![way])
}

/// Has the root group show what proves that names are ours.
struct Proves<'a> {
    port: &'a Port<Node>,
    name: &'a str,
    mark: &'a str,
}

impl Shows for Proves<'_> {
    async fn show(&self, proofs: Proofs) -> Result<(), Failed> {
        let (name, mark) = (self.name.to_owned(), self.mark.to_owned());
        let shown = done(self.port, Deed::Show { name, mark, proofs }).await;
        shown.map_err(|why| Failed {
            why: format!("nodes cannot show over TLS that the names are here: {why}"),
            after: None,
        })?;
        tokio::time::sleep(SPREAD_WITHIN).await;
        Ok(())
    }
}

async fn order(port: &Port<Node>, name: &str, wanted: &Wanted, account: &Account) -> Result<Certificate, Failed> {
    let spec = &wanted.spec;
    let own = |why: String| Failed { why, after: None };
    let ways = ways(spec, &port.view());
    let key = AccountKey::read(&account.key.0).map_err(own)?;
    let (key_pem, request) = host::request_for(&spec.names).map_err(|e| own(e.to_string()))?;
    let wish = Wish {
        names: &spec.names,
        directory: &spec.directory,
        contact: &spec.contact,
        ca: spec.ca.as_deref(),
        account: &key,
        ways: &ways,
        request: &request,
        key_pem: &key_pem,
    };
    obtain(&wish, &Proves { port, name, mark: &wanted.mark }).await
}

async fn make_account(port: &Port<Node>) -> Result<(), String> {
    let key = AccountKey::generate()?;
    let thumbprint = AccountKey::read(&key)?.thumbprint();
    let account = Account { key: base::process::Private(key.into()), thumbprint };
    done(port, Deed::Account { account, entropy: random_bytes()? }).await
}

async fn issued(port: &Port<Node>, name: &str, wanted: &Wanted, certificate: Certificate) -> Result<(), String> {
    let (name, mark, certificate) = (name.to_owned(), wanted.mark.clone(), Box::new(certificate));
    done(port, Deed::Issued { name, mark, certificate, entropy: random_bytes()? }).await
}

async fn done(port: &Port<Node>, deed: Deed) -> Result<(), String> {
    match port.ask(Ask::Certificate(deed), ASK_WITHIN).await {
        Ok(Answer::Applied(Outcome::Done(_))) => Ok(()),
        Ok(Answer::Applied(Outcome::Refused(refused))) => Err(refused.why),
        Ok(Answer::Applied(Outcome::Unknown(unknown))) => Err(unknown.why),
        Ok(other) => unreachable!("what became of a certificate was answered by {other:?}"),
        Err(gone) => Err(gone.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_due_at_two_thirds_of_its_life_and_after_a_failure_when_that_says() {
        let spec = clones::CertificateSpec {
            names: vec!["a.example".into()],
            directory: "https://ca.example/dir".into(),
            contact: Vec::new(),
            agree: true,
            ca: None,
            challenge: None,
        };
        let day = 86_400_000;
        let of = |has, trouble| Wanted { spec: spec.clone(), mark: "m".into(), has, trouble };
        let trouble =
            |next_at_ms| node::acme::Trouble { mark: "m".into(), tries: 1, why: String::new(), at_ms: 0, next_at_ms };
        assert_eq!(due_ms("a", &of(None, None)), 0);
        assert_eq!(due_ms("a", &of(Some((day, 91 * day)), Some(trouble(7)))), 7);
        let due: Vec<u64> = ["a", "b", "c"].map(|name| due_ms(name, &of(Some((day, 91 * day)), None))).into();
        assert!(due.iter().all(|at| (61 * day..65 * day).contains(at)) && due[0] != due[1], "{due:?}");
        assert_eq!(due[0], due_ms("a", &of(Some((day, 91 * day)), None)), "whoever leads");
    }

    #[test]
    fn waits_grow_from_minutes_to_hours_and_obey_the_directory() {
        let mut rng = Rng::new(1);
        for (tries, least, most) in [(0, 48_000, 72_000), (3, 384_000, 576_000), (40, 17_280_000, 25_920_000)] {
            for _ in 0..100 {
                let wait = wait_ms(tries, None, &mut rng);
                assert!((least..=most).contains(&wait), "{tries}: {wait}");
            }
        }
        assert_eq!(wait_ms(0, Some(Duration::from_secs(3_600)), &mut rng), 3_600_000);
        assert!(wait_ms(0, Some(Duration::from_secs(1)), &mut rng) >= 48_000, "no tight loop, whatever it says");
        assert_eq!(wait_ms(0, Some(Duration::MAX), &mut rng), AFTER_MAX_MS);
    }
}
