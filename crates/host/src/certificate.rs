//! A node's certificate ends after a month, and long before that another one takes its place, with another key: who copied the former
//! key has it for that long at most. Whether the node may have another one is for others to say; who signs is [`Authority`]'s matter.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::{new_request, write_safely};
use crate::limits::CERTIFICATE_BACKDATED;
use crate::{Authority, Error, Identity};

/// Between which moments a certificate is good, seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    pub begin_s: i64,
    pub end_s: i64,
}

impl Validity {
    /// Of a certificate that is to live so long. It begins earlier, for clocks that are behind.
    pub fn from(now: SystemTime, life: Duration) -> Self {
        let now_s = seconds(now);
        let life_s = i64::try_from(life.as_secs()).unwrap_or(i64::MAX / 4);
        Self { begin_s: now_s - backdated(life_s), end_s: now_s + life_s }
    }

    /// # Errors
    /// It is no certificate.
    pub fn of(cert_pem: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::Identity(format!("node.pem: {what}"));
        let der = CertificateDer::from_pem_slice(cert_pem.as_bytes()).map_err(|e| wrong(e.to_string()))?;
        let (_, cert) = X509Certificate::from_der(&der).map_err(|e| wrong(e.to_string()))?;
        let validity = cert.validity();
        Ok(Self { begin_s: validity.not_before.timestamp(), end_s: validity.not_after.timestamp() })
    }

    /// Whether it is time for another one that lives for `life`: under a third of its time is left, or a little more (`early`, up to
    /// 1000, is each node's own, so that they do not all come at once). Also if it is good for longer than nodes agree on, as older
    /// programs made them, or not yet, by a clock that was ahead.
    pub fn is_due(&self, now: SystemTime, life: Duration, early: u16) -> bool {
        let (now_s, span) = (seconds(now), self.end_s - self.begin_s);
        let agreed = Self::from(now, life);
        let ahead = span / 30 * i64::from(early.min(1000)) / 1000;
        let is_late = self.end_s - now_s <= span / 3 + ahead;
        is_late || now_s < self.begin_s || span > agreed.end_s - agreed.begin_s
    }

    pub fn is_over(&self, now: SystemTime) -> bool {
        self.end_s <= seconds(now)
    }
}

/// A day, or as long as it lives.
fn backdated(life_s: i64) -> i64 {
    life_s.min(CERTIFICATE_BACKDATED.as_secs().cast_signed())
}

fn seconds(at: SystemTime) -> i64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX / 4))
}

/// The renewed identity, whole, until its key and its certificate both have taken their places.
pub(crate) const RENEWED: &str = "identity.renewed";

impl Identity {
    /// The same node with another key, certified for so long.
    ///
    /// # Errors
    /// There is no randomness, or the authority is none.
    pub fn renewed(&self, authority: &Authority, life: Duration) -> Result<Identity, Error> {
        let (key_pem, request) = new_request(&self.name)?;
        let cert_pem = authority.sign_for(&request, self.node, self.cluster, &self.name, life)?;
        Ok(Identity { cert_pem, key_pem, ..self.clone() })
    }

    /// From the next start on these authorities are trusted.
    ///
    /// # Errors
    /// The disk takes nothing.
    pub fn trusts(&self, ca_pem: &str, dir: &Path) -> Result<Identity, Error> {
        write_safely(dir, "ca.pem", ca_pem.as_bytes())?;
        Ok(Identity { ca_pem: ca_pem.to_owned(), ..self.clone() })
    }

    /// Takes the place of what is in the folder of the same node, whose lock the caller's process holds. A crash leaves the former
    /// identity or this one.
    ///
    /// # Errors
    /// The disk takes nothing.
    pub fn replace(&self, dir: &Path) -> Result<(), Error> {
        let json = serde_json::to_vec(self).expect("an identity is plain data");
        write_safely(dir, RENEWED, &json)?;
        finish(dir, self)
    }
}

/// Goes on where a crash cut [`Identity::replace`] short. What a node left that was here before is none of this one's.
pub(crate) fn finish_replacing(dir: &Path, node: base::NodeId) -> Result<(), Error> {
    let path = dir.join(RENEWED);
    let json = match fs::read(&path) {
        Ok(json) => json,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(path.display().to_string())(e)),
    };
    let renewed: Identity =
        serde_json::from_slice(&json).map_err(|e| Error::NotOurs { file: path, what: e.to_string() })?;
    if renewed.node == node { finish(dir, &renewed) } else { forget(dir) }
}

fn finish(dir: &Path, identity: &Identity) -> Result<(), Error> {
    write_safely(dir, "node.key", identity.key_pem.as_bytes())?;
    write_safely(dir, "node.pem", identity.cert_pem.as_bytes())?;
    forget(dir)
}

fn forget(dir: &Path) -> Result<(), Error> {
    let path = dir.join(RENEWED);
    let gone = fs::remove_file(&path).and_then(|()| File::open(dir)?.sync_all());
    gone.map_err(Error::io(path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DataDir;
    use crate::identity::found;
    use crate::limits::CERTIFICATE_LIFE;
    use crate::tls::{Tls, temp_dir};

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn another_one_is_due_when_a_third_is_left_or_what_there_is_is_not_as_agreed() {
        let (now, life) = (UNIX_EPOCH + DAY * 20_000, CERTIFICATE_LIFE);
        let made = Validity::from(now, life);
        assert_eq!((made.begin_s, made.end_s), (19_999 * 86_400, 20_030 * 86_400));
        let due = |after: Duration, early| made.is_due(now + after, life, early);
        for (days, early, is_due) in
            [(0, 1000, false), (18, 1000, false), (19, 0, false), (19, 1000, true), (20, 0, true), (25, 0, true)]
        {
            assert_eq!(due(DAY * days, early), is_due, "after {days} days, early {early}");
        }
        assert!(!made.is_over(now + DAY * 29) && made.is_over(now + DAY * 30) && due(DAY * 400, 0));
        assert!(made.is_due(now - DAY * 2, life, 0), "it was signed by a clock that was ahead");
        let older = Validity::from(now, DAY * 3650);
        assert!(older.is_due(now, life, 0), "older programs made them for ten years");
        let short = Validity::from(now, Duration::from_secs(6));
        let due = |after| short.is_due(now + Duration::from_secs(after), Duration::from_secs(6), 0);
        assert!(!due(1) && due(2), "half of the time that it lives is before it is made");
    }

    #[test]
    fn a_certificate_says_how_long_it_is_good_and_a_renewed_one_is_of_the_same_node_with_another_key() {
        let (identity, authority) = found("home", "a").unwrap();
        let now = SystemTime::now();
        let made = Validity::of(&identity.cert_pem).unwrap();
        assert!(!made.is_due(now, CERTIFICATE_LIFE, 1000), "the first one is as agreed: {made:?}");
        assert!(!made.is_over(now + DAY * 29) && made.is_over(now + DAY * 31));
        let renewed = identity.renewed(&authority, DAY * 2).unwrap();
        let made = Validity::of(&renewed.cert_pem).unwrap();
        assert!(!made.is_over(now + DAY) && made.is_over(now + DAY * 3));
        assert_eq!((renewed.node, &renewed.name), (identity.node, &identity.name));
        assert_ne!(renewed.key_pem, identity.key_pem);
        let tls = Tls::new(&identity).unwrap();
        tls.show(&renewed).unwrap();
        let torn = Identity { key_pem: identity.key_pem.clone(), ..renewed.clone() };
        assert!(tls.show(&torn).is_err(), "key and certificate do not belong together");
        let (other, _) = found("home", "b").unwrap();
        assert!(tls.show(&Identity { cert_pem: other.cert_pem, key_pem: other.key_pem, ..renewed }).is_err());
        assert!(Validity::of("").is_err() && Validity::of(&identity.key_pem).is_err());
    }

    #[test]
    fn whatever_step_a_crash_follows_key_and_certificate_belong_together() {
        let (identity, authority) = found("home", "a").unwrap();
        let renewed = identity.renewed(&authority, CERTIFICATE_LIFE).unwrap();
        // How far it came: all written down, the key in its place, the certificate too.
        for crashed_after in 0..3 {
            let temp = temp_dir("renewed");
            let dir = DataDir::open(&temp.0).unwrap();
            identity.save(&dir).unwrap();
            write_safely(&temp.0, RENEWED, &serde_json::to_vec(&renewed).unwrap()).unwrap();
            if crashed_after > 0 {
                write_safely(&temp.0, "node.key", renewed.key_pem.as_bytes()).unwrap();
            }
            if crashed_after > 1 {
                write_safely(&temp.0, "node.pem", renewed.cert_pem.as_bytes()).unwrap();
            }
            assert_eq!(Identity::load(&dir).unwrap(), Some(renewed.clone()), "{crashed_after}");
            assert!(!temp.0.join(RENEWED).exists());
            identity.replace(&temp.0).unwrap();
            assert_eq!(Identity::load(&dir).unwrap(), Some(identity.clone()));
        }
    }

    #[test]
    fn who_entered_anew_does_not_become_who_it_was() {
        let (former, authority) = found("home", "a").unwrap();
        let renewed = former.renewed(&authority, CERTIFICATE_LIFE).unwrap();
        let temp = temp_dir("former");
        let dir = DataDir::open(&temp.0).unwrap();
        former.save(&dir).unwrap();
        write_safely(&temp.0, RENEWED, &serde_json::to_vec(&renewed).unwrap()).unwrap();
        let (now, _) = found("home", "a").unwrap();
        dir.enter_anew(&now).unwrap();
        assert_eq!(Identity::load(&dir).unwrap(), Some(now));
        assert!(!temp.0.join(RENEWED).exists());
    }
}
