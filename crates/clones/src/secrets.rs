//! Secrets of a service as its clones get them: each as a variable of its own name, or as a file if that is declared, and in place of
//! `${secret.NAME}` in `env` and `run`; beside it `${NAMESPACE.url}`. Which secrets there are, and how they are kept, is not this crate's
//! matter: it is told their values. Nothing here puts a value into a message.

use std::collections::BTreeMap;

use base::process::{Given, Private};

use crate::limits::{SECRET_FILES_MAX, SECRET_NAME_BYTES_MAX};
use crate::spec::env_error;
use crate::{ServiceSpec, SpecError};

/// The secrets of one service, by their names.
pub type Secrets = BTreeMap<String, Secret>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secret {
    /// None: it is there, and cannot be opened.
    pub value: Option<Private>,
    /// Another one whenever it is set; says nothing of the value.
    pub mark: String,
}

/// Of a service that has none.
pub static NONE: Secrets = BTreeMap::new();

/// Why a secret may not be called so, if it may not: it is to be a variable.
pub fn name_error(name: &str) -> Option<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let fits = !name.is_empty()
        && name.len() <= SECRET_NAME_BYTES_MAX
        && name.bytes().all(plain)
        && !name.as_bytes()[0].is_ascii_digit();
    if !fits {
        return Some(format!(
            "a secret's name has 1 to {SECRET_NAME_BYTES_MAX} letters, digits and _, and no digit first, as DB_PASSWORD; {name:?} does not fit"
        ));
    }
    env_error(name, "").map(|why| format!("{name} {why}"))
}

/// Mistakes of a declaration in what it says of secrets and of URLs of namespaces.
pub(crate) fn mistakes(spec: &ServiceSpec) -> Vec<SpecError> {
    let mut errors = Vec::new();
    let mut wrong = |key: String, why: String| errors.push(SpecError { key, why });
    if spec.secret_files.len() > SECRET_FILES_MAX {
        wrong("secret_files".into(), format!("{} are over the limit of {SECRET_FILES_MAX}", spec.secret_files.len()));
    }
    for (at, name) in spec.secret_files.iter().enumerate() {
        let again = spec.secret_files[..at].contains(name).then(|| format!("{name:?} stands there twice"));
        if let Some(why) = name_error(name).or(again) {
            wrong("secret_files".into(), why);
        }
    }
    let texts = spec.env.iter().map(|(name, value)| (format!("env.{name}"), value));
    for (key, text) in texts.chain(spec.run.iter().map(|word| ("run".to_owned(), word))) {
        for named in references(text) {
            let why = match named {
                Named::Secret(name) => name_error(name),
                Named::Url(namespace) if !spec.namespaces.iter().any(|of| of == namespace) => Some(format!(
                    "${{{namespace}.url}} is of no namespace of the service; add {namespace:?} to its namespaces"
                )),
                Named::Url(_) => None,
            };
            if let Some(why) = why {
                wrong(key.clone(), why);
            }
        }
    }
    if spec.run.first().is_some_and(|program| references(program).next().is_some()) {
        wrong("run".into(), "the program's own name cannot be a secret or a URL: it stands in messages".into());
    }
    errors
}

/// The key by which a declaration speaks of secrets, or of URLs in its texts: older programs would pass these on as they are.
pub(crate) fn key(spec: &ServiceSpec) -> Option<&'static str> {
    let speaks = |text: &String| references(text).next().is_some();
    let in_env = || spec.env.values().any(speaks).then_some("env");
    let in_run = || spec.run.iter().any(speaks).then_some("run");
    (!spec.secret_files.is_empty()).then_some("secret_files").or_else(in_env).or_else(in_run)
}

/// Secrets that stand in its command line, where everybody on a machine sees them.
pub fn in_run(spec: &ServiceSpec) -> Vec<&str> {
    let secret = |named| if let Named::Secret(name) = named { Some(name) } else { None };
    spec.run.iter().flat_map(|word| references(word).filter_map(secret)).collect()
}

/// Variables of a service's clones, and what else they are given; or what is lacking, for people.
pub(crate) fn given(
    spec: &ServiceSpec,
    secrets: &Secrets,
    urls: &BTreeMap<String, String>,
) -> Result<(BTreeMap<String, String>, Given), String> {
    let (mut variables, mut given) = (BTreeMap::new(), Given::default());
    let value = |name: &str| match secrets.get(name) {
        None => Err(format!("waits for secret {name}: `coppice secret set SERVICE {name}` sets it")),
        Some(Secret { value: None, .. }) => {
            Err(format!("secret {name} cannot be opened; `coppice secret set SERVICE {name}` sets it anew"))
        }
        Some(Secret { value: Some(value), .. }) => Ok(value),
    };
    let text = |name: &str, value: &Private| {
        let why = format!("secret {name} is not text, and can only be a file: secret_files = [{name:?}]");
        value.text().map(str::to_owned).ok_or(why)
    };
    for name in &spec.secret_files {
        given.files.insert(name.clone(), value(name)?.clone());
    }
    for name in secrets.keys().filter(|name| !spec.secret_files.contains(name)) {
        variables.insert(name.clone(), text(name, value(name)?)?);
    }
    for named in spec.env.values().chain(&spec.run).flat_map(|word| references(word)) {
        let (words, word) = match named {
            Named::Secret(name) => (format!("secret.{name}"), text(name, value(name)?)?),
            Named::Url(of) => match urls.get(of) {
                Some(url) => (format!("{of}.url"), url.clone()),
                None => return Err(format!("waits for namespace {of:?}")),
            },
        };
        given.words.insert(words, Private(word.into()));
    }
    Ok((variables, given))
}

/// What says whether a process is as it is to be, with its secrets: they are in it by their marks, never by their values, as every node
/// is told its hash.
pub(crate) fn marked(started_with: Vec<u8>, spec: &ServiceSpec, secrets: &Secrets) -> Vec<u8> {
    if secrets.is_empty() && spec.secret_files.is_empty() {
        return started_with;
    }
    let marks: BTreeMap<&String, &String> = secrets.iter().map(|(name, secret)| (name, &secret.mark)).collect();
    let all = (String::from_utf8_lossy(&started_with), &spec.secret_files, marks);
    serde_json::to_vec(&all).expect("strings become JSON")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named<'a> {
    Secret(&'a str),
    Url(&'a str),
}

/// What a text refers to: `${secret.NAME}`, `${NAMESPACE.url}`. `$${...}` is text, as `host` has it that puts them in.
fn references(text: &str) -> impl Iterator<Item = Named<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find("${")?;
            let is_text = rest[..at].ends_with('$');
            rest = &rest[at + 2..];
            let Some(end) = rest.find('}').filter(|_| !is_text) else { continue };
            let named = match rest[..end].split_once('.') {
                Some(("secret", name)) => Some(Named::Secret(name)),
                Some((namespace, "url")) if !namespace.is_empty() => Some(Named::Url(namespace)),
                Some(_) | None => None,
            };
            if named.is_some() {
                rest = &rest[end + 1..];
                return named;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(value: &'static [u8], mark: &str) -> Secret {
        Secret { value: Some(Private(value.into())), mark: mark.into() }
    }

    fn spec(toml: &str) -> ServiceSpec {
        toml::from_str(toml).unwrap()
    }

    #[test]
    fn texts_refer_to_secrets_and_urls_and_to_nothing_else() {
        for (text, expect) in [
            ("${secret.A}:${secret.B_2}", vec![Named::Secret("A"), Named::Secret("B_2")]),
            ("x${carts.url}/0", vec![Named::Url("carts")]),
            ("$${secret.A} ${PORT} ${a.b} ${X:-y} ${.url} ${secret.A", vec![]),
            ("${${secret.A}}", vec![Named::Secret("A")]),
            ("", vec![]),
        ] {
            assert_eq!(references(text).collect::<Vec<_>>(), expect, "{text:?}");
        }
    }

    #[test]
    fn a_clone_gets_variables_files_and_filled_words_or_hears_what_is_lacking() {
        let spec = spec(
            "run = [\"a\", \"--pw=${secret.PW}\"]\nenv = { DB = \"x://u:${secret.PW}@h ${carts.url}\" }\n\
             namespaces = [\"carts\"]\nsecret_files = [\"KEY\"]",
        );
        let urls = BTreeMap::from([("carts".to_owned(), "redis://c".to_owned())]);
        let mut secrets = Secrets::from([("PW".to_owned(), secret(b"hunter2", "1"))]);
        let why = given(&spec, &secrets, &urls).unwrap_err();
        assert!(why.contains("waits for secret KEY") && !why.contains("hunter2"), "{why}");
        secrets.insert("KEY".into(), secret(b"\xff\0", "2"));
        let (variables, all) = given(&spec, &secrets, &urls).unwrap();
        assert_eq!(variables, BTreeMap::from([("PW".to_owned(), "hunter2".to_owned())]));
        assert_eq!(all.files["KEY"].0, b"\xff\0"[..]);
        let words: Vec<_> = all.words.iter().map(|(name, word)| (name.as_str(), word.text().unwrap())).collect();
        assert_eq!(words, [("carts.url", "redis://c"), ("secret.PW", "hunter2")]);
        assert!(!format!("{all:?}").contains("hunter2"));
        secrets.insert("RAW".into(), secret(b"\xff", "3"));
        assert!(given(&spec, &secrets, &urls).unwrap_err().contains("secret_files = [\"RAW\"]"));
        secrets.insert("RAW".into(), Secret { value: None, mark: "3".into() });
        assert!(given(&spec, &secrets, &urls).unwrap_err().contains("RAW cannot be opened"));
    }

    #[test]
    fn marks_tell_a_change_and_values_are_in_no_hash() {
        let spec = spec("run = [\"a\"]");
        let with = |value, mark| marked(b"x".to_vec(), &spec, &Secrets::from([("PW".to_owned(), secret(value, mark))]));
        assert_eq!(marked(b"x".to_vec(), &spec, &NONE), b"x", "who has none is started as ever");
        assert_eq!(with(b"one", "1"), with(b"two", "1"));
        assert_ne!(with(b"one", "1"), with(b"one", "2"));
    }

    #[test]
    fn what_is_wrong_in_a_declaration_is_said() {
        for (toml, key, why) in [
            ("secret_files = [\"a b\"]", "secret_files", "as DB_PASSWORD"),
            ("secret_files = [\"PORT\"]", "secret_files", "by its node"),
            ("secret_files = [\"A\", \"A\"]", "secret_files", "twice"),
            ("env = { X = \"${secret.}\" }", "env.X", "does not fit"),
            ("env = { X = \"${carts.url}\" }", "env.X", "add \"carts\" to its namespaces"),
        ] {
            let errors = mistakes(&spec(&format!("run = [\"a\"]\n{toml}")));
            assert!(errors.len() == 1 && errors[0].key == key && errors[0].why.contains(why), "{toml}: {errors:?}");
        }
        let program = spec("run = [\"${secret.A}\"]");
        assert!(mistakes(&program)[0].why.contains("stands in messages"));
        let good = spec("run = [\"a\", \"${secret.A}\"]");
        assert_eq!((mistakes(&good), key(&good), in_run(&good)), (vec![], Some("run"), vec!["A"]));
    }
}
