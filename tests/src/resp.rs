//! A small client of the Redis protocol (RESP2), beside redis-cli and redis-py, for tests that need to look often.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(String),
    Nil,
    List(Vec<Word>),
}

pub struct Resp {
    stream: BufReader<TcpStream>,
}

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const READ_WITHIN: Duration = Duration::from_secs(5);
const ENDS_WITHIN: Duration = Duration::from_secs(30);

impl Resp {
    pub fn connect(at: SocketAddr) -> Result<Resp, String> {
        let open = || {
            let stream = TcpStream::connect_timeout(&at, CONNECT_WITHIN)?;
            stream.set_read_timeout(Some(READ_WITHIN))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = open().map_err(|e: std::io::Error| format!("{at}: {e}"))?;
        Ok(Resp { stream: BufReader::new(stream) })
    }

    /// A connection that has opened a namespace.
    pub fn open(at: SocketAddr, namespace: &str, token: &str) -> Result<Resp, String> {
        let mut resp = Resp::connect(at)?;
        match resp.ask(&["AUTH", namespace, token])? {
            Word::Simple(_) => Ok(resp),
            other => Err(format!("AUTH at {at}: {other:?}")),
        }
    }

    /// One command, one answer. Errors of the server are words, those of the connection are errors.
    pub fn ask(&mut self, words: &[&str]) -> Result<Word, String> {
        self.tell(words)?;
        self.read().map_err(|e| format!("{words:?}: {e}"))
    }

    /// One command, whose answer is not waited for.
    pub fn tell(&mut self, words: &[&str]) -> Result<(), String> {
        let mut frame = format!("*{}\r\n", words.len());
        for word in words {
            frame += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(frame.as_bytes()).map_err(|e| format!("{words:?}: {e}"))
    }

    /// The next answer.
    pub fn hear(&mut self) -> Result<Word, String> {
        self.read()
    }

    /// Waits until the server ends the connection: in order, or how else.
    pub fn ended(mut self) -> Result<(), String> {
        self.stream.get_mut().set_read_timeout(Some(ENDS_WITHIN)).map_err(|e| e.to_string())?;
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).map_err(|e| e.to_string())?;
        if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes that nobody asked for", rest.len())) }
    }

    fn read(&mut self) -> Result<Word, String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(|e| e.to_string())?;
        let Some((kind, rest)) = line.strip_suffix("\r\n").and_then(|l| l.split_at_checked(1)) else {
            return Err(format!("connection closed after {line:?}"));
        };
        let number = || rest.parse::<i64>().map_err(|e| format!("{line:?}: {e}"));
        match kind {
            "+" => Ok(Word::Simple(rest.to_owned())),
            "-" => Ok(Word::Error(rest.to_owned())),
            ":" => Ok(Word::Int(number()?)),
            "$" | "*" if number()? < 0 => Ok(Word::Nil),
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.stream.read_exact(&mut bytes).map_err(|e| e.to_string())?;
                bytes.truncate(bytes.len() - 2);
                String::from_utf8(bytes).map(Word::Bulk).map_err(|e| e.to_string())
            }
            "*" => (0..number()?).map(|_| self.read()).collect::<Result<_, _>>().map(Word::List),
            _ => Err(format!("not RESP2: {line:?}")),
        }
    }
}
