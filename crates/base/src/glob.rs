//! Redis' patterns for MATCH: `*`, `?`, `[a-z]`, `[^a]`, `\x`. Time is bounded by pattern times text, whatever the pattern.

/// Does the whole text fit the pattern?
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
    fits_within(pattern, text, usize::MAX)
}

/// ... and is that known after so many steps?
pub fn fits_within(pattern: &[u8], text: &[u8], steps_max: usize) -> bool {
    let (mut p, mut t, mut steps) = (0, 0, 0);
    // Where to go back to: after the last star, with one more byte taken by it.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = one(&pattern[p..], text[t]);
        // What is read of a `[...]` counts, too.
        steps += if let Step::Fits(read) | Step::Not(read) = step { read.max(1) } else { 1 };
        if steps > steps_max {
            return false;
        }
        match step {
            Step::Star => {
                p += 1;
                star = Some((p, t));
            }
            Step::Fits(used) => {
                p += used;
                t += 1;
            }
            Step::Not(_) => match &mut star {
                Some((after, from)) => {
                    *from += 1;
                    (p, t) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    let rest = &pattern[p..];
    rest.len() <= steps_max && rest.iter().all(|&b| b == b'*')
}

/// A pattern of at most so many bytes that fits all that this one fits, and perhaps more: as far as it goes, and `*`.
pub fn shortened(pattern: &[u8], bytes_max: usize) -> Vec<u8> {
    let mut at = 0;
    while at < pattern.len() {
        let used = match &pattern[at..] {
            [b'\\', _, ..] => 2,
            [b'[', rest @ ..] => class(rest, 0).1 + 1,
            _ => 1,
        };
        if at + used >= bytes_max {
            return [&pattern[..at], b"*"].concat();
        }
        at += used;
    }
    pattern.to_vec()
}

enum Step {
    Star,
    /// The byte fits the next `n` bytes of the pattern.
    Fits(usize),
    /// ... or does not.
    Not(usize),
}

fn one(pattern: &[u8], byte: u8) -> Step {
    let fits = |yes: bool, used| if yes { Step::Fits(used) } else { Step::Not(used) };
    match pattern {
        [] => Step::Not(0),
        [b'*', ..] => Step::Star,
        [b'?', ..] => Step::Fits(1),
        [b'\\', escaped, ..] => fits(*escaped == byte, 2),
        [b'[', rest @ ..] => {
            let (yes, used) = class(rest, byte);
            fits(yes, used + 1)
        }
        [plain, ..] => fits(*plain == byte, 1),
    }
}

/// What follows a `[`: does the byte belong to it, and how long is it? Without `]` it goes to the pattern's end, as in Redis.
fn class(rest: &[u8], byte: u8) -> (bool, usize) {
    let not = rest.first() == Some(&b'^');
    let (mut at, mut found) = (usize::from(not), false);
    loop {
        match &rest[at..] {
            [] => return (found != not, at),
            [b']', ..] => return (found != not, at + 1),
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [low, b'-', high, ..] if *high != b']' => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= *plain == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_fit_as_in_redis() {
        for (pattern, text, expect) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("cart:*:x", "cart:a:b:x", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[a-c]llo", "hdllo", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[\\]]", "]", true),
            ("a[", "a", false),
            ("a[b", "ab", true),
            ("a**b*", "ab", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!fits(pattern.as_bytes(), "a".repeat(512).as_bytes()));
    }

    /// A class is read to its end for each byte of the text.
    #[test]
    fn steps_are_bounded_whatever_the_pattern() {
        let class = format!("*[{}]b", "x".repeat(10_000));
        assert!(fits_within(class.as_bytes(), b"xb", 30_000));
        assert!(!fits_within(class.as_bytes(), b"aaaaxb", 30_000));
        assert!(fits_within(&[b'a'; 512], &[b'a'; 512], 512) && !fits_within(&[b'a'; 512], &[b'a'; 512], 511));
    }

    /// The dumb twin: tries everything.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|n| model(rest, &text[n..])),
            ([b'?', rest @ ..], [_, more @ ..]) => model(rest, more),
            ([p, rest @ ..], [t, more @ ..]) => p == t && model(rest, more),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_its_dumb_twin(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            prop_assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), model(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn a_shortened_pattern_fits_no_less(pattern in "[ab*?^\\[\\]\\\\-]{0,12}", text in "[ab]{0,8}", most in 2usize..9) {
            let short = shortened(pattern.as_bytes(), most);
            prop_assert!(short.len() <= most || short == pattern.as_bytes());
            prop_assert!(!fits(pattern.as_bytes(), text.as_bytes()) || fits(&short, text.as_bytes()), "{:?}", short);
        }

        #[test]
        fn no_pattern_makes_it_panic(pattern in prop::collection::vec(any::<u8>(), 0..40), text in ".{0,20}") {
            fits(&pattern, text.as_bytes());
        }
    }
}
