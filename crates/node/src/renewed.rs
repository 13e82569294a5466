//! Tokens that are made anew, when one may have leaked: the operator's and those of namespaces. The one before opens
//! for a while longer, so that programs can be told the new one, and then nothing. Each node looks at its own clock for
//! that: no change is needed when the while is over. Tokens of services follow from the operator's and change with it;
//! one that is to change alone gets a salt. (Join tokens: `tokens.rs`.)

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Now;
use base::process::Private;
use base::text::span_text;
use cluster::root::{Change, Declared};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::asks::hex;
use crate::declared::{self, Diff, json, kind, listed};
use crate::limits::{TOKEN_CHARS, TOKEN_KEPT_MAX};
use crate::node::Node;

/// Whose token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whose {
    Operator,
    Namespace(String),
    Service(String),
}

/// What is wished.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renewal {
    pub whose: Whose,
    /// The new one; of a service the salt that it follows from.
    pub token: Private,
    /// How long the one before opens, milliseconds.
    pub keep_ms: u64,
}

/// Tokens that open for a while longer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Formers {
    pub operator: Option<String>,
    pub namespaces: BTreeMap<String, String>,
    pub services: BTreeMap<String, String>,
}

/// One of them as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FormerTokenView {
    /// `operator`, or `namespace carts`.
    pub of: String,
    /// Until when it opens, milliseconds since 1970.
    pub until_ms: u64,
}

/// A record.
#[derive(Serialize, Deserialize)]
struct Former {
    token: String,
    until_ms: u64,
    /// Mark of the one that took its place: with another one (its namespace was removed and declared again) it opens
    /// nothing.
    next: String,
}

impl Renewal {
    pub(crate) fn is_of_service(&self) -> bool {
        matches!(self.whose, Whose::Service(_))
    }
}

impl Whose {
    fn record(&self) -> String {
        match self {
            Self::Operator => format!("{FORMER}operator"),
            Self::Namespace(name) => format!("{FORMER}ns/{name}"),
            Self::Service(name) => format!("{FORMER}service/{name}"),
        }
    }

    pub fn shown(&self) -> String {
        match self {
            Self::Operator => "operator".to_owned(),
            Self::Namespace(name) => format!("namespace {name}"),
            Self::Service(name) => format!("service {name}"),
        }
    }
}

/// The change that gives somebody this token in place of the one before.
///
/// # Errors
/// A sentence that says nothing of any token.
pub(crate) fn renew(now: &Declared, wish: &Renewal, wall_ms: u64) -> Result<Diff, String> {
    let Renewal { whose, token, keep_ms } = wish;
    let is_good = |token: &&str| token.len() == TOKEN_CHARS && token.bytes().all(|b| b.is_ascii_hexdigit());
    let Some(token) = token.text().filter(is_good) else {
        return Err(format!("a token has {TOKEN_CHARS} hexadecimal digits"));
    };
    if *keep_ms > TOKEN_KEPT_MAX.as_millis() {
        let most = span_text(TOKEN_KEPT_MAX.as_millis());
        return Err(format!("the token before may open for {most} at most, not for {}", span_text(*keep_ms)));
    }
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    let mut is = token.to_owned();
    let before = match whose {
        Whose::Operator => {
            change.puts.push((kind::SECRET.into(), ADMIN.into(), token.as_bytes().to_vec().into()));
            declared::text(now, kind::SECRET, ADMIN)
        }
        Whose::Namespace(name) => {
            let mut all = declared::secrets(now);
            let Some(mut secret) = all.remove(name) else {
                return Err(format!(
                    "there is no namespace {name:?}; declared are: {}",
                    listed(all.keys().map(|n| &**n))
                ));
            };
            let before = std::mem::replace(&mut secret.token, token.to_owned());
            change.puts.push((kind::SECRET.into(), declared::secret_name(name), json(&secret)));
            before
        }
        Whose::Service(name) => {
            let admin = declared::text(now, kind::SECRET, ADMIN);
            let salted = |salt: &str| declared::service_token(&admin, name, salt);
            let before = now.get(kind::SERVICE, name).and_then(|_| salted(&salt(now, name)));
            let (Some(before), Some(new)) = (before, salted(token)) else {
                let all = now.of_kind(kind::SERVICE).map(|(name, _)| name);
                return Err(format!("there is no service {name:?}; declared are: {}", listed(all)));
            };
            change.puts.push((kind::SECRET.into(), salt_name(name), token.as_bytes().to_vec().into()));
            is = new;
            before
        }
    };
    // Who was not told how the first try ended asks again.
    if before == is {
        return Ok(Diff { lines: Vec::new(), change: Change { expect: Some(now.version), ..Change::default() } });
    }
    let record = whose.record();
    let is_there = now.get(kind::SECRET, &record).is_some();
    let opens = if *keep_ms > 0 {
        let former = Former { token: before, until_ms: wall_ms.saturating_add(*keep_ms), next: mark(&is) };
        change.puts.push((kind::SECRET.into(), record, json(&former)));
        format!("opens for {} more", span_text(*keep_ms))
    } else {
        change.removes.extend(is_there.then_some((kind::SECRET.to_owned(), record)));
        "opens nothing any more".to_owned()
    };
    Ok(Diff { lines: vec![format!("~ token of {}: the one before {opens}", whose.shown())], change })
}

/// Former tokens that still open, how they are shown, and when that is to be looked at again.
fn formers(now: &Declared, wall_ms: u64) -> (Formers, Vec<FormerTokenView>, Option<u64>) {
    let (mut formers, mut views) = (Formers::default(), Vec::new());
    let read = |whose: &Whose, is: &str| {
        let former: Former = serde_json::from_slice(now.get(kind::SECRET, &whose.record())?).ok()?;
        (former.until_ms > wall_ms && former.next == mark(is)).then_some((former.token, former.until_ms))
    };
    let mut shows = |whose: &Whose, until_ms| views.push(FormerTokenView { of: whose.shown(), until_ms });
    if let Some((token, until_ms)) = read(&Whose::Operator, &declared::text(now, kind::SECRET, ADMIN)) {
        shows(&Whose::Operator, until_ms);
        let services = now.of_kind(kind::SERVICE).map(|(name, _)| name);
        let its = |name: &str| Some((name.to_owned(), declared::service_token(&token, name, &salt(now, name))?));
        formers.services = services.filter_map(its).collect();
        formers.operator = Some(token);
    }
    for (name, secret) in declared::secrets(now) {
        let whose = Whose::Namespace(name.clone());
        if let Some((token, until_ms)) = read(&whose, &secret.token) {
            shows(&whose, until_ms);
            formers.namespaces.insert(name, token);
        }
    }
    let admin = declared::text(now, kind::SECRET, ADMIN);
    for (name, _) in now.of_kind(kind::SERVICE) {
        let whose = Whose::Service(name.to_owned());
        let is = declared::service_token(&admin, name, &salt(now, name)).unwrap_or_default();
        // It was in use later than what would follow from the operator's token before.
        if let Some((token, until_ms)) = read(&whose, &is) {
            shows(&whose, until_ms);
            formers.services.insert(name.to_owned(), token);
        }
    }
    let next = views.iter().map(|view| view.until_ms).min();
    (formers, views, next)
}

/// What a service's token follows from besides the operator's: empty as long as it was not made anew.
pub(crate) fn salt(now: &Declared, service: &str) -> String {
    declared::text(now, kind::SECRET, &salt_name(service))
}

fn salt_name(service: &str) -> String {
    format!("{SALT}{service}")
}

/// Records that end with a service.
pub(crate) fn gone_with(now: &Declared, service: &str) -> Vec<(String, String)> {
    let names = [salt_name(service), Whose::Service(service.to_owned()).record()];
    let there = names.into_iter().filter(|name| now.get(kind::SECRET, name).is_some());
    there.map(|name| (kind::SECRET.to_owned(), name)).collect()
}

fn mark(token: &str) -> String {
    hex(&digest(&SHA256, token.as_bytes()).as_ref()[..8])
}

impl Node {
    /// Shows the doors which tokens open besides those of now. They look at all again if it is another pointer.
    pub(crate) fn show_formers(&mut self, now: Now) {
        let (formers, views, next) = formers(self.root.declared(), now.wall_ms);
        if *self.former_tokens != formers {
            self.former_tokens = Arc::new(formers);
        }
        (self.former_tokens_shown, self.former_tokens_end_ms) = (views.into(), next);
        self.stale = true;
    }

    /// Some may have come to their end since.
    pub(crate) fn keep_formers(&mut self, now: Now) {
        if self.former_tokens_end_ms.is_some_and(|end| end <= now.wall_ms) {
            self.show_formers(now);
        }
    }
}

const ADMIN: &str = "admin";
/// How records of those that open for a while longer begin among the secret ones.
const FORMER: &str = "former/";
/// ... and those of what tokens of services follow from.
const SALT: &str = "salt/";
/// The level from which a service's token may follow from more than the operator's: an older node would refuse it.
pub(crate) const LEVEL_SALT: u32 = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::{after, diff};

    const OLD: &str = "00112233445566778899aabbccddeeff00112233";
    const NEW: &str = "ffeeddccbbaa99887766554433221100ffeeddcc";

    fn some() -> Declared {
        let mut now = Declared { version: 1, ..Declared::default() };
        now.records.insert((kind::SECRET.into(), ADMIN.into()), OLD.as_bytes().to_vec().into());
        let text = "[namespace.carts]\nclass = \"session\"\n\n[service.shop]\nrun = [\"a\"]\n";
        let first = diff(&now, "shop.toml", text, &[7; 32]).unwrap();
        after(&now, &first.change)
    }

    fn wish(whose: Whose, token: &str, keep_ms: u64) -> Renewal {
        Renewal { whose, token: Private(token.as_bytes().to_vec().into()), keep_ms }
    }

    fn carts() -> Whose {
        Whose::Namespace("carts".into())
    }

    #[test]
    fn the_operators_token_before_opens_for_a_while_and_with_it_those_of_services() {
        let now = some();
        let diff = renew(&now, &wish(Whose::Operator, NEW, 1_000), 50).unwrap();
        assert_eq!(diff.lines, ["~ token of operator: the one before opens for 1s more"]);
        let now = after(&now, &diff.change);
        assert_eq!(declared::text(&now, kind::SECRET, ADMIN), NEW);
        let (open, views, next) = formers(&now, 1_049);
        assert_eq!(open.operator.as_deref(), Some(OLD));
        assert_eq!(open.services["shop"], declared::service_token(OLD, "shop", "").unwrap());
        assert_eq!((views, next), (vec![FormerTokenView { of: "operator".into(), until_ms: 1_050 }], Some(1_050)));
        assert_eq!(formers(&now, 1_050), (Formers::default(), vec![], None), "its while is over");

        let again = renew(&now, &wish(Whose::Operator, NEW, 9_000), 60).unwrap();
        assert!(again.lines.is_empty() && again.change.puts.is_empty(), "who asks again prolongs nothing");
        let third = NEW.replace('f', "a");
        let at_once = renew(&now, &wish(Whose::Operator, &third, 0), 60).unwrap();
        assert!(at_once.lines[0].contains("opens nothing any more"));
        let now = after(&now, &at_once.change);
        assert_eq!(formers(&now, 61), (Formers::default(), vec![], None), "the first one neither");
    }

    #[test]
    fn a_namespace_that_is_declared_again_does_not_take_its_older_token() {
        let now = some();
        let before = declared::secrets(&now)["carts"].clone();
        let now = after(&now, &renew(&now, &wish(carts(), NEW, 1_000), 0).unwrap().change);
        let is = declared::secrets(&now)["carts"].clone();
        assert_eq!((&*is.token, is.id, &is.cookie), (NEW, before.id, &before.cookie), "cookies stay");
        assert_eq!(formers(&now, 5).0.namespaces["carts"], before.token);
        assert!(!crate::declared::export(&now).contains(NEW));
        let gone = diff(&now, "shop.toml", "", &[7; 32]).unwrap();
        let now = after(&now, &gone.change);
        assert_eq!(formers(&now, 5).0, Formers::default());
        let anew = diff(&now, "shop.toml", "[namespace.carts]\nclass = \"session\"\n", &[9; 32]).unwrap();
        assert_eq!(formers(&after(&now, &anew.change), 5).0, Formers::default());
    }

    #[test]
    fn a_services_token_changes_alone_and_with_the_operators() {
        let shop = || Whose::Service("shop".into());
        let is = |now: &Declared| {
            let admin = declared::text(now, kind::SECRET, ADMIN);
            declared::service_token(&admin, "shop", &salt(now, "shop")).unwrap()
        };
        let first = some();
        let now = after(&first, &renew(&first, &wish(shop(), NEW, 1_000), 0).unwrap().change);
        assert_ne!(is(&now), is(&first));
        assert!(!is(&now).contains(NEW), "the salt is no token");
        let (open, views, next) = formers(&now, 999);
        assert_eq!(open.services["shop"], is(&first));
        assert_eq!((&*views[0].of, open.operator, next), ("service shop", None, Some(1_000)));
        assert_eq!(formers(&now, 1_000).0, Formers::default());
        let again = renew(&now, &wish(shop(), NEW, 9_000), 5).unwrap();
        assert!(again.lines.is_empty() && again.change.puts.is_empty(), "who asks again prolongs nothing");

        // The operator's is made anew meanwhile: what opened last before that opens, not what was before.
        let later = after(&now, &renew(&now, &wish(Whose::Operator, NEW, 2_000), 10).unwrap().change);
        assert_eq!(formers(&later, 20).0.services["shop"], is(&now));
        assert!(!crate::declared::export(&later).contains(&is(&later)));

        let gone = crate::declared::diff(&now, "shop.toml", "", &[7; 32]).unwrap();
        let left = after(&now, &gone.change);
        assert!(left.of_kind(kind::SECRET).all(|(name, _)| !name.contains("shop")), "nothing is left of it");
    }

    #[test]
    fn what_is_no_token_is_refused_and_not_told() {
        let now = some();
        let long = format!("{NEW}00");
        for (whose, token, keep_ms, why) in [
            (Whose::Operator, "", 1, "40 hexadecimal digits"),
            (Whose::Operator, "s3same", 1, "40 hexadecimal digits"),
            (Whose::Operator, &*long, 1, "40 hexadecimal digits"),
            (Whose::Operator, NEW, u64::MAX, "7d at most"),
            (Whose::Namespace("other".into()), NEW, 1, "declared are: carts"),
            (Whose::Service("other".into()), NEW, 1, "declared are: shop"),
            (Whose::Service("shop".into()), "s3same", 1, "40 hexadecimal digits"),
        ] {
            let told = renew(&now, &wish(whose, token, keep_ms), 0).unwrap_err();
            assert!(told.contains(why) && !told.contains("s3same") && !told.contains(NEW), "{told}");
        }
    }
}
