//! Renews this node's certificate at two thirds of its life, and at once if it has ended: the node says whether it may have another
//! one, the authority's key (which the node keeps) signs, the running node shows it from then on. No other node is asked, so a whole
//! cluster that was off for longer than certificates live comes back by itself. So it is when the authority changes
//! (`node/src/authority.rs`): whom the declaration says is trusted from then on, and a certificate of another authority than the one that
//! signs now is renewed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use base::{Outcome, Rng, Span};
use edge::tls::Certs;
use flow::Backoff;
use host::{Authority, Identity, Port, Tls, Validity};
use node::{Admitted, Answer, Ask, Node};

/// As often the declaration is asked whom to trust.
const AUTHORITY_LOOK_EVERY: Duration = Duration::from_secs(1);
const AGAIN_FIRST: Span = Span::millis(200);
/// A third of a month has hundreds of them.
const AGAIN_MAX: Span = Span::secs(3600);
/// A node that has just started hears of the declaration a moment later.
const TRIES_UNTOLD: u32 = 5;
const ASK_WITHIN: Span = Span::secs(5);
/// As often as files are looked at.
const FILES_LOOK_EVERY: Duration = Duration::from_secs(2);
/// The shortest life, for tests.
const LIFE_MIN: Duration = Duration::from_secs(2);

/// For tests of what happens when certificates end, and nowhere else.
const LIFE_VARIABLE: &str = "COPPICE_LAB_CERTIFICATE_SECS";

/// How long certificates that this node makes for itself live.
pub fn life() -> Duration {
    let said = std::env::var(LIFE_VARIABLE).ok().and_then(|secs| secs.parse().ok()).map(Duration::from_secs);
    let Some(life) = said else { return host::limits::CERTIFICATE_LIFE };
    let life = life.clamp(LIFE_MIN, host::limits::CERTIFICATE_LIFE);
    tracing::warn!("{LIFE_VARIABLE}: this node's certificates live {life:?}; for tests only");
    life
}

/// What is shown of this node's certificate.
#[derive(Debug, Default)]
pub struct Figures {
    ends_at_s: AtomicU64,
    failed: AtomicU64,
    turn: AtomicU64,
}

impl Figures {
    pub fn gauges(&self) -> [(String, u64); 3] {
        [
            (node::authority::AUTHORITY_TURN.to_owned(), self.turn.load(Ordering::Relaxed)),
            (node::CERTIFICATE_ENDS.to_owned(), self.ends_at_s.load(Ordering::Relaxed)),
            (node::CERTIFICATE_FAILED.to_owned(), self.failed.load(Ordering::Relaxed)),
        ]
    }
}

/// Renews for as long as the node lives.
pub struct Renewal {
    pub identity: Identity,
    pub dir: PathBuf,
    pub life: Duration,
    pub port: Port<Node>,
    /// What shows the certificate, to nodes and to clients.
    pub tls: Tls,
    pub own: Arc<Certs>,
    pub figures: Arc<Figures>,
}

impl Renewal {
    pub async fn follow(mut self, mut rng: Rng) {
        let early = rng.between(0, 1000) as u16;
        let mut again = Backoff::new(AGAIN_FIRST, AGAIN_MAX.min(Span::from(self.life / 30)).max(AGAIN_FIRST));
        loop {
            // Made by an authority and read before this: it can be read.
            let Ok(has) = Validity::of(&self.identity.cert_pem) else { return };
            self.figures.ends_at_s.store(u64::try_from(has.end_s).unwrap_or(0), Ordering::Relaxed);
            let followed = self.follow_authority().await;
            let is_due = has.is_due(SystemTime::now(), self.life, early);
            if let Ok(false) | Err(_) = followed
                && !is_due
            {
                if let Err(why) = followed {
                    tracing::debug!(%why, "the authority is not followed now");
                }
                tokio::time::sleep((self.life / 100).min(AUTHORITY_LOOK_EVERY)).await;
                continue;
            }
            let text = match self.renew().await {
                Ok(()) => {
                    again.reset();
                    self.figures.failed.store(0, Ordering::Relaxed);
                    tracing::info!(secs = self.life.as_secs(), "this node's certificate was renewed");
                    Some(format!("its certificate was renewed, for {}", span(self.life)))
                }
                Err(why) => {
                    let wait = again.next(&mut rng);
                    let told = again.tries().saturating_sub(TRIES_UNTOLD);
                    self.figures.failed.store(told.into(), Ordering::Relaxed);
                    if told > 0 {
                        let is_over = has.is_over(SystemTime::now());
                        tracing::warn!(%why, is_over, again_in = ?wait, "this node's certificate cannot be renewed");
                    }
                    tokio::time::sleep(wait.into()).await;
                    (told == 1).then(|| format!("its certificate cannot be renewed: {why}"))
                }
            };
            if let Some(text) = text
                && self.port.ask(Ask::Certified { text }, ASK_WITHIN).await.is_err()
            {
                return;
            }
        }
    }

    /// Trusts whom the declaration says; whether this node's certificate is to be of another authority than it is.
    async fn follow_authority(&mut self) -> Result<bool, String> {
        let admitted = self.certify().await?;
        let ca_pem = authorities(&admitted);
        if ca_pem != self.identity.ca_pem {
            let new = self.identity.trusts(&ca_pem, &self.dir).map_err(|e| e.to_string())?;
            self.tls.trust(&ca_pem).map_err(|e| e.to_string())?;
            self.own.show(&chain(&new), &new.key_pem)?;
            self.identity = new;
            tracing::info!(turn = admitted.turn, "this node trusts other authorities of its cluster than before");
        }
        let is_of_it = host::is_signed_by(&self.identity.cert_pem, &ca_pem).map_err(|e| e.to_string())?;
        if is_of_it {
            self.figures.turn.store(admitted.turn, Ordering::Relaxed);
        }
        Ok(!is_of_it)
    }

    async fn certify(&self) -> Result<Admitted, String> {
        match self.port.ask(Ask::Certify, ASK_WITHIN).await {
            Ok(Answer::Admitted(Outcome::Done(admitted))) => Ok(admitted),
            Ok(Answer::Admitted(Outcome::Refused(refused))) => Err(refused.why),
            Ok(Answer::Admitted(Outcome::Unknown(unknown))) => Err(unknown.why),
            Ok(other) => unreachable!("the wish for a certificate was answered by {other:?}"),
            Err(gone) => Err(gone.to_string()),
        }
    }

    /// What the disk does not take is not shown: the next start would not have it.
    async fn renew(&mut self) -> Result<(), String> {
        let admitted = self.certify().await?;
        let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
        let authority = Authority { cert_pem: text(&admitted.ca_cert), key_pem: text(&admitted.ca_key) };
        let new = self.identity.renewed(&authority, self.life).map_err(|e| e.to_string())?;
        new.replace(&self.dir).map_err(|e| e.to_string())?;
        self.tls.show(&new).map_err(|e| e.to_string())?;
        self.own.show(&chain(&new), &new.key_pem)?;
        self.identity = new;
        Ok(())
    }
}

/// Certificates of all authorities that are to be trusted, PEM, the one that signs first.
pub fn authorities(admitted: &Admitted) -> String {
    let all = [&admitted.ca_cert].into_iter().chain(&admitted.also);
    all.map(|pem| String::from_utf8_lossy(pem)).collect::<Vec<_>>().join("")
}

/// What is shown of certificates that this node has from files.
pub fn file_gauges(certs: &Certs) -> [(String, u64); 2] {
    let [first_end_s, wrong] = certs.figures();
    [(node::FILES_END.to_owned(), first_end_s), (node::FILES_WRONG.to_owned(), wrong)]
}

/// Says each pair of files that is not taken as an event, once for as long as it is wrong.
pub async fn tell_wrong_files(certs: Arc<Certs>, port: Port<Node>) {
    let mut said = Vec::new();
    loop {
        let wrong = certs.wrong();
        for error in wrong.iter().filter(|error| !said.contains(*error)) {
            let text = format!("a certificate of its files is not taken: {error}");
            if port.ask(Ask::Certified { text }, ASK_WITHIN).await.is_err() {
                return;
            }
        }
        said = wrong;
        tokio::time::sleep(FILES_LOOK_EVERY).await;
    }
}

/// As clients of the node's own doors are shown it.
pub fn chain(identity: &Identity) -> String {
    format!("{}\n{}", identity.cert_pem, identity.ca_pem)
}

fn span(life: Duration) -> String {
    match life.as_secs() / 86_400 {
        0 => format!("{} seconds", life.as_secs()),
        days => format!("{days} days"),
    }
}
