//! A statement as words and brackets, which is all that is looked at of it.

use crate::limits::NESTED_MAX;

/// A statement, as it is written.
#[derive(Debug)]
pub enum Node {
    /// Of a name or of the language, in small letters.
    Word(Box<str>),
    /// A name or text in quotes, in small letters.
    Quoted(Box<str>),
    Mark(u8),
    /// A number, or what stands for an argument.
    Other,
    /// What stands in brackets.
    Group(Vec<Node>),
}

/// Words that are never names of columns or tables.
const RESERVED: &[&str] = &[
    "add",
    "all",
    "alter",
    "and",
    "as",
    "autoincrement",
    "between",
    "case",
    "check",
    "collate",
    "commit",
    "constraint",
    "create",
    "default",
    "deferrable",
    "delete",
    "distinct",
    "drop",
    "else",
    "escape",
    "except",
    "exists",
    "foreign",
    "from",
    "group",
    "having",
    "in",
    "index",
    "insert",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "limit",
    "not",
    "nothing",
    "notnull",
    "null",
    "on",
    "or",
    "order",
    "primary",
    "references",
    "returning",
    "select",
    "set",
    "table",
    "then",
    "to",
    "transaction",
    "union",
    "unique",
    "update",
    "using",
    "values",
    "when",
    "where",
];

impl Node {
    /// A word, of the language or a name.
    pub fn word(&self) -> Option<&str> {
        if let Self::Word(word) = self { Some(word) } else { None }
    }

    pub fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    /// What may be the name of something.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Word(word) if RESERVED.binary_search(&&**word).is_err() => Some(word),
            Self::Quoted(name) => Some(name),
            _ => None,
        }
    }

    pub fn is_mark(&self, mark: u8) -> bool {
        matches!(self, Self::Mark(is) if *is == mark)
    }

    pub fn group(&self) -> Option<&[Node]> {
        if let Self::Group(nodes) = self { Some(nodes) } else { None }
    }
}

/// Whether what stands in brackets is a statement.
pub fn is_unit(nodes: &[Node]) -> bool {
    let first = nodes.first().and_then(Node::word);
    first.is_some_and(|word| ["select", "with", "values"].contains(&word))
}

/// Whether a table could stand where these brackets do.
pub fn is_source(nodes: &[Node], at: usize) -> bool {
    at == 0 || nodes[at - 1].is_mark(b',') || nodes[at - 1].is_word("from") || nodes[at - 1].is_word("join")
}

pub fn small(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into()
}

/// Words and brackets of a statement; none if they are nested too deep.
pub fn read(sql: &str) -> Option<Vec<Node>> {
    let bytes = sql.as_bytes();
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80;
    let mut open: Vec<Vec<Node>> = vec![Vec::new()];
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let rest = &bytes[at..];
        let next = rest.get(1).copied();
        let (node, long) = match byte {
            b'-' if next == Some(b'-') => (None, rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())),
            b'/' if next == Some(b'*') => {
                let end = rest[2..].windows(2).position(|pair| pair == b"*/");
                (None, end.map_or(rest.len(), |end| end + 4))
            }
            b'\'' | b'"' | b'`' | b'[' => {
                let (name, long) = quoted(rest);
                (Some(Node::Quoted(name)), long)
            }
            b'(' => {
                if open.len() > NESTED_MAX {
                    return None;
                }
                open.push(Vec::new());
                (None, 1)
            }
            b')' => {
                let group = (open.len() > 1).then(|| open.pop()).flatten();
                (group.map(Node::Group), 1)
            }
            b'?' | b':' | b'@' | b'$' | b'0'..=b'9' => {
                let long = rest[1..].iter().position(|byte| !is_of_word(*byte) && *byte != b'.');
                (Some(Node::Other), long.map_or(rest.len(), |long| long + 1))
            }
            _ if is_of_word(byte) => {
                let long = rest.iter().position(|byte| !is_of_word(*byte)).unwrap_or(rest.len());
                (Some(Node::Word(small(&String::from_utf8_lossy(&rest[..long])))), long)
            }
            _ if byte.is_ascii_whitespace() => (None, 1),
            _ => (Some(Node::Mark(byte)), 1),
        };
        if let (Some(node), Some(innermost)) = (node, open.last_mut()) {
            innermost.push(node);
        }
        at += long;
    }
    // What is not closed is no statement of SQLite.
    while open.len() > 1 {
        let group = open.pop().unwrap_or_default();
        open.last_mut()?.push(Node::Group(group));
    }
    open.pop()
}

/// What stands in quotes, and how long that is with them.
fn quoted(bytes: &[u8]) -> (Box<str>, usize) {
    let close = if bytes[0] == b'[' { b']' } else { bytes[0] };
    let (mut name, mut at) = (Vec::new(), 1);
    while let Some(byte) = bytes.get(at).copied() {
        if byte == close {
            if close == b']' || bytes.get(at + 1) != Some(&close) {
                break;
            }
            at += 1;
        }
        name.push(byte);
        at += 1;
    }
    (small(&String::from_utf8_lossy(&name)), (at + 1).min(bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_are_in_order() {
        assert!(RESERVED.is_sorted());
    }
}
