//! Words of a child's command line, and its variables, that name what only its node knows, like `--port $PORT`: put in without
//! a shell, so that a program that reads no environment, or other names of it, needs none. Other dollars stay as they are, for a shell that is started on purpose.

/// What may be named, beside what a declaration puts there itself: `${secret.NAME}` and `${NAMESPACE.url}`, which alone have a point.
/// None of these is a secret: command lines are seen by everybody on a machine.
const NAMES: [&str; 7] =
    ["HOST", "PORT", "TMPDIR", "COPPICE_SERVICE", "COPPICE_CLONE", "COPPICE_NODE", "COPPICE_VERSION"];

/// The word with `$NAME` and `${NAME}` replaced by what `value` says of them. `$$NAME` is the text `$NAME`.
pub fn filled<'a>(word: &str, value: impl Fn(&str) -> Option<&'a str>) -> String {
    let known = |text: &str| {
        let (name, len) = reference(text)?;
        let may_be = NAMES.contains(&name) || name.contains('.');
        may_be.then(|| value(name)).flatten().map(|value| (value, len))
    };
    let (mut out, mut rest) = (String::with_capacity(word.len()), word);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let escaped = rest[1..].starts_with('$').then(|| known(&rest[1..])).flatten();
        if let Some((_, len)) = escaped {
            out.push_str(&rest[1..=len]);
            rest = &rest[1 + len..];
        } else if let Some((value, len)) = known(rest) {
            out.push_str(value);
            rest = &rest[len..];
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out + rest
}

/// The name that a text begins to refer to, which begins with a dollar, and how long the reference is.
fn reference(text: &str) -> Option<(&str, usize)> {
    let after = text.strip_prefix('$')?;
    if let Some(braced) = after.strip_prefix('{') {
        let name = &braced[..braced.find('}')?];
        return Some((name, name.len() + 3));
    }
    let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
    Some((&after[..end], end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_node_knows_is_put_in_and_all_else_stays() {
        let value = |name: &str| match name {
            "HOST" => Some("10.0.0.1"),
            "PORT" => Some("4001"),
            "COPPICE_CLONE" => Some("shop/$PORT"),
            "COPPICE_TOKEN" | "HOME" => Some("secret"),
            "secret.PW" => Some("a$PORT}"),
            _ => None,
        };
        for (word, expect) in [
            ("$PORT", "4001"),
            ("${PORT}", "4001"),
            ("--bind=$HOST:$PORT", "--bind=10.0.0.1:4001"),
            ("${HOST}x${PORT}y", "10.0.0.1x4001y"),
            ("é$PORTé", "é4001é"),
            ("$PORTS", "$PORTS"),
            ("$PORT_A ${PORT_A} ${PORT", "$PORT_A ${PORT_A} ${PORT"),
            ("$$PORT $${PORT}", "$PORT ${PORT}"),
            ("$$$PORT", "$$PORT"),
            ("kill $$; echo $? $1 $HOME ${X:-$PORT} $", "kill $$; echo $? $1 $HOME ${X:-4001} $"),
            ("$COPPICE_CLONE", "shop/$PORT"),
            ("$COPPICE_TOKEN", "$COPPICE_TOKEN"),
            ("$COPPICE_VERSION", "$COPPICE_VERSION"),
            ("$(PORT) $port", "$(PORT) $port"),
            ("x:${secret.PW}@$PORT", "x:a$PORT}@4001"),
            ("$${secret.PW} $secret.PW ${secret.NO}", "${secret.PW} $secret.PW ${secret.NO}"),
            ("", ""),
        ] {
            assert_eq!(filled(word, value), expect, "{word:?}");
        }
    }
}
