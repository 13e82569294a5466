//! Words of `run` that take a job's parameters: `{quality}` is the value of parameter `quality`, `{quality=25}` that or
//! 25. Only whole words are replaced, and never by a shell. A value that a program might take for an option is refused.

use std::collections::BTreeMap;

use crate::job::is_name;

/// The program's words for a job.
///
/// # Errors
/// A sentence: the job lacks a parameter, or one is no plain value.
pub fn filled(words: &[String], params: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    words.iter().map(|word| one(word, params)).collect()
}

fn one(word: &str, params: &BTreeMap<String, String>) -> Result<String, String> {
    let Some((name, default)) = wanted(word) else { return Ok(word.to_owned()) };
    let Some(value) = params.get(name) else {
        return default.map(str::to_owned).ok_or_else(|| format!("parameter {name:?} is missing"));
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_option = value.strip_prefix('-').is_some_and(|rest| !is_number(rest));
    if is_option {
        Err(format!("parameter {name:?} is {value:?}, which reads as an option"))
    } else {
        Ok(value.clone())
    }
}

fn wanted(word: &str) -> Option<(&str, Option<&str>)> {
    let inner = word.strip_prefix('{')?.strip_suffix('}')?;
    let (name, default) = inner.split_once('=').map_or((inner, None), |(name, default)| (name, Some(default)));
    is_name(name).then_some((name, default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_take_parameters_and_nothing_else_changes() {
        let params: BTreeMap<_, _> =
            [("quality", "25"), ("word", "$(rm) ;"), ("shift", "-1.5"), ("bad", "--exec"), ("inf", "-inf")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        for (word, expect) in [
            ("{quality}", Ok("25")),
            ("{quality=80}", Ok("25")),
            ("{size=10x10}", Ok("10x10")),
            ("{size=}", Ok("")),
            ("{word}", Ok("$(rm) ;")),
            ("{shift}", Ok("-1.5")),
            ("-q{quality}", Ok("-q{quality}")),
            ("{}", Ok("{}")),
            ("{Quality}", Ok("{Quality}")),
            ("{ quality }", Ok("{ quality }")),
            ("{quality", Ok("{quality")),
            ("{size}", Err("parameter \"size\" is missing")),
            ("{inf}", Err("parameter \"inf\" is \"-inf\", which reads as an option")),
            ("{bad}", Err("parameter \"bad\" is \"--exec\", which reads as an option")),
        ] {
            let got = filled(&[word.to_owned()], &params);
            assert_eq!(got, expect.map(|w| vec![w.to_owned()]).map_err(str::to_owned), "{word}");
        }
    }
}
