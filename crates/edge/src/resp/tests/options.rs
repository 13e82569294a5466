//! No option is dropped without a word: each command of each class is sent with every option that any command has. That changes
//! what the node is asked, or what is answered, or it is an error.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::resp::commands::{self, Does, Spec};

/// Words that change nothing, and the docs say so; without a word: whatever stands there.
const MEANS_NOTHING: &[(&[&str], &str, &str)] = &[
    (
        &["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"],
        "XX",
        "of class session each value has an end, and of class linear GT says as much",
    ),
    (&["FLUSHDB", "FLUSHALL"], "ASYNC", "there is one way to remove all"),
    (&["FLUSHDB", "FLUSHALL"], "SYNC", "there is one way to remove all"),
    (&["COPY"], "DB", "a namespace is one database"),
    (&["RESTORE"], "IDLETIME", "nothing is evicted"),
    (&["RESTORE"], "FREQ", "nothing is evicted"),
    (&["MEMORY"], "SAMPLES", "all of a value is counted"),
    (&["CONFIG"], "", "names of settings that there are not"),
    (
        &["BLPOP", "BRPOP", "BZPOPMIN", "BZPOPMAX"],
        "",
        "more keys, behind one that has an item; the last word is a time to wait, 0 for ever",
    ),
    (&["LCS"], "WITHMATCHLEN", "as in Redis it says more of what IDX shows, and else nothing"),
    (&["SORT", "SORT_RO"], "ALPHA", "the words of the list cannot be sorted without, so it is there already"),
    (&["SORT", "SORT_RO"], "ASC", "this is what is done without"),
    (&["INFO"], "", "names of sections that there are not, as in Redis"),
    (&["QUIT"], "", "as in Redis"),
    (&["FUNCTION"], "WITHCODE", "no library is loaded there, and those that are built in have no code"),
    (&["FUNCTION"], "LIBRARYNAME", "no library is loaded there, and those that are built in are not called so"),
    (&["EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"], "", "what stands behind the keys is the script's own"),
];

/// Each command without an option, of class `session` ...
const SESSION: &str = "
    GET text\nSTRLEN text\nTYPE text\nTTL text\nPTTL text\nMGET text\nEXISTS text\nSET text v\nSETEX text 100 v
    PSETEX text 5000 v\nSETNX text v\nMSET text v\nDEL text\nUNLINK text\nRENAME text new\nDIGEST text\nDELEX text
    GETEX text\nGETDEL text\nEXPIRE text 100\nPEXPIRE text 5000\nEXPIREAT text 4102444800\nPEXPIREAT text 4102444800000
    HSET hash f v\nHMSET hash f v\nHSETNX hash f v\nHGET hash f\nHMGET hash f\nHGETALL hash\nHKEYS hash\nHVALS hash
    HLEN hash\nHEXISTS hash f\nHDEL hash f\nDBSIZE\nSCAN 0";

/// ... of class `linear` ...
const LINEAR: &str = "
    DEL text\nUNLINK text\nEXISTS text\nTOUCH text\nTYPE text\nTTL text\nPTTL text\nEXPIRE ends 100\nPEXPIRE ends 5000
    EXPIREAT ends 4102444800\nPEXPIREAT ends 4102444800000\nPERSIST text\nRENAME text new\nRENAMENX text new\nCOPY text new
    EXPIRETIME text\nPEXPIRETIME text\nDUMP text\nRESTORE new 5000 \0\x01v\x06\0\0\0\0\0\0\0\0\0\nGET text\nSET text v\nSETNX text v\nSETEX text 100 v\nPSETEX text 5000 v
    GETSET text v\nGETDEL text\nGETEX text\nDIGEST text\nDELEX text\nSTRLEN text\nAPPEND text v\nGETRANGE text 0 1
    SUBSTR text 0 1\nSETRANGE text 0 v\nMSETNX new v\nMSETEX 1 text v\nINCR number\nDECR number\nINCRBY number 1\nDECRBY number 1
    INCRBYFLOAT number 1\nMGET text\nMSET text v\nSETBIT text 0 1\nGETBIT text 0\nBITCOUNT text\nBITPOS text 1
    BITOP NOT new text\nBITFIELD text SET u8 0 1\nBITFIELD_RO text GET u8 0\nLCS text number\nPFADD sketch c\nPFCOUNT sketch
    PFMERGE new sketch\nSORT list ALPHA\nSORT_RO list ALPHA\nGEOADD geo 3 3 c\nGEOPOS geo a\nGEOHASH geo a\nGEODIST geo a b
    GEOSEARCH geo FROMMEMBER a BYRADIUS 900 km\nGEOSEARCHSTORE new geo FROMMEMBER a BYRADIUS 900 km\nGEORADIUS geo 1 1 900 km
    GEORADIUS_RO geo 1 1 900 km\nGEORADIUSBYMEMBER geo a 900 km\nGEORADIUSBYMEMBER_RO geo a 900 km\nHSET hash f v\nHMSET hash f v\nHSETNX hash f v\nHGET hash f\nHMGET hash f\nHGETALL hash
    HKEYS hash\nHVALS hash\nHLEN hash\nHEXISTS hash f\nHDEL hash f\nHINCRBY hash n 1\nHINCRBYFLOAT hash n 1\nHSCAN hash 0
    HRANDFIELD hash 9\nHGETDEL hash FIELDS 1 f\nHGETEX hash FIELDS 1 f\nHSETEX hash FIELDS 1 f v\nHEXPIRE hash 100 FIELDS 1 f\nHPEXPIRE hash 5000 FIELDS 1 f
    HEXPIREAT hash 4102444800 FIELDS 1 f\nHPEXPIREAT hash 4102444800000 FIELDS 1 f\nHPERSIST hash FIELDS 1 f\nHTTL hash FIELDS 1 f\nHPTTL hash FIELDS 1 f
    HEXPIRETIME hash FIELDS 1 f\nHPEXPIRETIME hash FIELDS 1 f\nHSTRLEN hash f\nLPUSH list v\nRPUSH list v\nLPOP list\nRPOP list\nLLEN list
    LRANGE list 0 9\nLINDEX list 0\nLREM list 0 a\nLTRIM list 0 0\nLPUSHX list v\nRPUSHX list v\nLSET list 0 v
    LINSERT list BEFORE a v\nLPOS list a\nLMPOP 1 list LEFT\nLMOVE list list LEFT RIGHT\nRPOPLPUSH list list\nSADD set v
    SREM set a\nSMEMBERS set\nSISMEMBER set a\nSMISMEMBER set a\nSCARD set\nSSCAN set 0\nSPOP set\nSRANDMEMBER set
    SMOVE set new a\nSUNION set\nSINTER set\nSDIFF set\nSUNIONSTORE new set\nSINTERSTORE new set\nSDIFFSTORE new set
    SINTERCARD 1 set\nZADD zset 3 a\nZINCRBY zset 1 a\nZREM zset a\nZCARD zset\nZSCORE zset a\nZMSCORE zset a\nZRANK zset a
    ZREVRANK zset a\nZCOUNT zset 0 9\nZLEXCOUNT zset - +\nZRANGE zset 0 9\nZREVRANGE zset 0 9\nZRANGEBYSCORE zset 0 9
    ZREVRANGEBYSCORE zset 9 0\nZRANGEBYLEX zset - +\nZREVRANGEBYLEX zset + -\nZREMRANGEBYRANK zset 0 0
    ZREMRANGEBYSCORE zset 0 1\nZREMRANGEBYLEX zset - [a\nZPOPMIN zset\nZPOPMAX zset\nZMPOP 1 zset MIN\nZRANDMEMBER zset 9
    ZSCAN zset 0\nZUNION 1 zset\nZINTER 1 zset\nZDIFF 1 zset\nZINTERCARD 1 zset\nZUNIONSTORE new 1 zset
    ZINTERSTORE new 1 zset\nZDIFFSTORE new 1 zset\nZRANGESTORE new zset 0 9\nBZPOPMIN zset 1\nBZPOPMAX zset 1
    BZMPOP 1 1 zset MIN\nXADD stream 6-1 f v\nXLEN stream\nXRANGE stream - +\nXREVRANGE stream + -\nXDEL stream 5-1
    XTRIM stream MAXLEN 0\nXSETID stream 9-9\nXREAD STREAMS stream 0\nXREADGROUP GROUP g c STREAMS stream >
    XACK stream g 5-1\nXPENDING stream g\nXCLAIM stream g c 0 5-1\nXAUTOCLAIM stream g c 0 0\nXGROUP CREATE stream h $
    XINFO STREAM stream\nDBSIZE\nRANDOMKEY\nFLUSHDB\nFLUSHALL\nSCAN 0\nKEYS *\nMULTI\nEXEC\nDISCARD\nWATCH text\nUNWATCH
    BLPOP list 1\nBRPOP list 1\nBLMPOP 1 1 list LEFT\nBLMOVE list list LEFT RIGHT 1\nBRPOPLPUSH list list 1\nREADONLY
    READWRITE\nCONFIG GET databases\nCLUSTER INFO\nOBJECT ENCODING text\nMEMORY USAGE text\nTIME\nROLE\nFCALL get 1 text
    FCALL_RO get 1 text\nFUNCTION LIST\nEVAL return(1) 0\nEVAL_RO return(1) 0\nEVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0
    EVALSHA_RO e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0\nSCRIPT EXISTS abc\nONCE 01980000-0000-7000-8000-000000000001 SET text v";

/// ... and of both.
const CONNECTION: &str = "
    HELLO\nAUTH secret3\nPING\nECHO hi\nSELECT 0\nQUIT\nCLIENT ID\nCOMMAND COUNT\nPRIORITY 5\nINFO replication\nSUBSCRIBE c\n\
    UNSUBSCRIBE c\nPSUBSCRIBE c\nPUNSUBSCRIBE c\nSSUBSCRIBE c\nSUNSUBSCRIBE c\nPUBLISH c m\nSPUBLISH c m\nPUBSUB NUMPAT\nRESET\nMONITOR\n\
    WAIT 1 100\nWAITAOF 0 1 100\nSLOWLOG LEN\nLATENCY LATEST\nMODULE LIST\nACL WHOAMI";

/// What is there when they are sent.
const THERE: &[(&str, &str, &[&str])] = &[
    ("text", "put", &["ab", "always", "none"]),
    ("number", "put", &["5", "always", "none"]),
    ("ends", "put", &["v", "always", "9000"]),
    ("hash", "hash.set", &["f", "1", "n", "2"]),
    ("list", "list.push-right", &["a", "b", "a"]),
    ("set", "set.add", &["a", "b"]),
    ("zset", "sorted.add", &["any", "any", "1", "a", "2", "b"]),
    ("geo", "sorted.add", &["any", "any", "3377699720527872", "a", "3377749860527872", "b"]),
    ("sketch", "sketch.add", &["a", "b"]),
    ("stream", "stream.add", &["5-1", "any", "-", "f", "v"]),
    ("stream", "stream.add", &["5-2", "any", "-", "f", "w"]),
    ("stream", "stream.group-make", &["g", "0-0", "-", "present"]),
    ("stream", "stream.read-group", &["g", "c", ">", "5", "1", "ack"]),
];

/// That is there, or nothing is.
fn put_there(toy: &Toy, there: bool) {
    let mut bank = bank();
    let mut values = BTreeMap::new();
    for (key, function, args) in THERE.iter().filter(|_| there) {
        let args: Vec<Bytes> = args.iter().map(|arg| Bytes::from_static(arg.as_bytes())).collect();
        if *function == "put" {
            let version = Version { ms: 1, counter: 0, node: NodeId(1) };
            let entry = Entry { value: args[0].clone(), kind: Kind::Text, version, lease: DEFAULT_LEASE };
            values.insert(Bytes::from_static(key.as_bytes()), entry);
        }
        bank(&linear::Step::new((*key).into(), function, args));
    }
    (*toy.values.borrow_mut(), *toy.bank.borrow_mut()) = (values, Some(bank));
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

fn name_of(line: &str) -> &str {
    line.split(' ').next().unwrap()
}

/// What stands for a word in small letters of a syntax.
fn value_of(word: &str) -> Option<String> {
    // Of the text that is there.
    if word == "digest" {
        return Some(commands::compare::digest(b"ab"));
    }
    Some(String::from(match word {
        "seconds" | "rank" => "2",
        "ms" => "5000",
        "unix-seconds" => "4102444800",
        "unix-ms" => "4102444800000",
        "n" | "count" => "2",
        "limit" | "length" | "numfields" => "1",
        "value" => "ab",
        "type" => "hash",
        "pattern" => "[ft]*",
        "0" => "0",
        other if other.bytes().all(|byte| byte.is_ascii_lowercase()) && !other.is_empty() => other,
        _ => return None,
    }))
}

/// Words in capitals of a syntax, each with what must stand behind it.
fn options_of(syntax: &str) -> BTreeSet<String> {
    let text = syntax.replace('|', " | ").replace('[', " [ ").replace(']', " ] ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_option = |word: &str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    let mut options = BTreeSet::new();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| is_option(word)) {
        let value = words.get(at + 1).and_then(|next| value_of(next));
        options.insert(value.map_or_else(|| (*word).to_owned(), |value| format!("{word} {value}")));
    }
    options
}

fn specs(linear: bool) -> Vec<&'static Spec> {
    let of_linear = || commands::linear::ALL.iter().flat_map(|some| some.iter());
    let of_connection = |spec: &&Spec| spec.does.is_of_connection();
    let of_session = commands::ALL.iter().copied();
    if linear { of_session.filter(of_connection).chain(of_linear()).collect() } else { of_session.collect() }
}

/// What came of a command: an error, or what was asked and answered.
type Came = Result<(Vec<String>, String), String>;

/// Where commands are sent.
struct Door {
    toy: Rc<Toy>,
    at: std::net::SocketAddr,
    linear: bool,
    /// A connection of which no command has changed anything.
    kept: RefCell<Option<TcpStream>>,
}

impl Door {
    /// Is an option passed over in silence? Not if it makes a difference where all is there, or where nothing is, so that any
    /// condition that is before it holds.
    async fn drops(&self, before: &str, option: &str) -> bool {
        for there in [true, false] {
            let plain = came_of(self, there, before).await;
            let with = came_of(self, there, &format!("{before} {option}")).await;
            if with.is_err() || with != plain {
                return false;
            }
        }
        true
    }
}

/// Sends a command, alone, where all is as it always is.
async fn came_of(door: &Door, there: bool, command: &str) -> Came {
    let Door { toy, at, linear, kept } = door;
    put_there(toy, there);
    let kept_one = kept.take();
    let mut stream = match kept_one {
        Some(kept) => kept,
        None => {
            let mut new = TcpStream::connect(at).await.unwrap();
            new.set_nodelay(true).unwrap();
            if *linear {
                sign_in_linear(&mut new).await
            } else {
                sign_in(&mut new).await
            }
            new
        }
    };
    *toy.asked.borrow_mut() = Some(vec![]);
    // What follows MULTI waits for its end.
    let end: &[&str] = match name_of(command) {
        "MULTI" => &["DISCARD", "ECHO done"],
        // Who listens says little else, and whom RESET has made a stranger nothing.
        "SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE" | "RESET" | "MONITOR" => &["QUIT"],
        _ => &["ECHO done"],
    };
    send(&mut stream, &[&[command], end].concat()).await;
    let answers = tokio::time::timeout(Duration::from_secs(10), answers(&mut stream, "$4\r\ndone\r\n"));
    let text = answers.await.unwrap_or_else(|_| panic!("no answer to {command}"));
    let spec = specs(*linear).into_iter().find(|spec| spec.name == name_of(command)).unwrap();
    if matches!(spec.does, Does::Read | Does::Write) {
        *kept.borrow_mut() = Some(stream);
    }
    let asked = toy.asked.take().unwrap().iter().map(|ask| without_chance(ask)).collect();
    if text.starts_with('-') { Err(text) } else { Ok((asked, without_chance(&text))) }
}

/// All that comes before this, or before the end.
async fn answers(stream: &mut TcpStream, end: &str) -> String {
    let mut got = vec![];
    while !got.ends_with(end.as_bytes()) && stream.read_buf(&mut got).await.unwrap() > 0 {}
    String::from_utf8_lossy(&got).trim_end_matches(end).to_owned()
}

/// Numbers as long as those that are drawn look alike, and so do milliseconds of this minute.
fn without_chance(text: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let is_now = |run: &str| run.parse::<u64>().is_ok_and(|ms| now.abs_diff(ms) < 60_000);
    let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| run.len() >= 15 || is_now(run));
    runs.fold(text.to_owned(), |text, run| text.replace(run, "#"))
}

#[test]
fn none_is_dropped_in_class_session() {
    none_is_dropped(false, |_| true);
}

#[test]
fn none_is_dropped_in_class_linear_of_hashes_and_before() {
    none_is_dropped(true, |name| name < "I");
}

#[test]
fn none_is_dropped_in_class_linear_behind_hashes() {
    none_is_dropped(true, |name| name >= "I");
}

/// Of commands with these names.
fn none_is_dropped(linear: bool, is_meant: fn(&str) -> bool) {
    with_door(|toy, stream| async move {
        toy.set_linear();
        let door = Door { toy, at: stream.peer_addr().unwrap(), linear, kept: RefCell::default() };
        let forms = [if linear { LINEAR } else { SESSION }, CONNECTION].into_iter().flat_map(lines);
        let forms: BTreeMap<&str, &str> = forms.map(|form| (name_of(form), form)).collect();
        let specs: BTreeMap<&str, &Spec> = specs(linear).into_iter().map(|spec| (spec.name, spec)).collect();
        assert!(forms.keys().eq(specs.keys()), "each command has a line above: {forms:?}");
        let mut dropped = vec![];
        for (name, form) in forms.into_iter().filter(|(name, _)| is_meant(name)) {
            dropped.extend(dropped_by(&door, form, specs[name]).await);
        }
        assert!(dropped.is_empty(), "the last option makes no difference: {dropped:#?}");
    });
}

/// Options of every command, of either class.
fn all_options() -> BTreeSet<String> {
    let all =
        specs(true).into_iter().chain(specs(false)).flat_map(|spec| options_of(spec.syntax)).collect::<BTreeSet<_>>();
    assert!(["IFEQ ab", "EX 2", "NX", "GT", "DB 0", "WITHVALUES"].iter().all(|word| all.contains(*word)), "{all:?}");
    all
}

async fn dropped_by(door: &Door, form: &str, spec: &Spec) -> Vec<String> {
    let mut dropped = vec![];
    let counts = |option: &&String| {
        let fits = |(commands, word, _): &(&[&str], &str, &str)| {
            commands.contains(&spec.name) && (word.is_empty() || name_of(option) == *word)
        };
        !MEANS_NOTHING.iter().any(fits)
    };
    let plain = came_of(door, true, form).await;
    let may_fail = ["EXEC", "DISCARD", "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"].contains(&spec.name)
        || spec.name.starts_with('H') && !door.linear;
    assert!(plain.is_ok() || may_fail, "{form}: {plain:?}");
    for option in all_options().iter().filter(counts) {
        if door.drops(form, option).await {
            dropped.push(format!("{form} {option}"));
        }
    }
    // Of two that a command has each does what it does, too. Of SCAN it cannot be seen where all values are of one type.
    let own = if form == "SCAN 0" && !door.linear { BTreeSet::new() } else { options_of(spec.syntax) };
    for one in own.iter().filter(counts) {
        let before = format!("{form} {one}");
        if came_of(door, true, &before).await.is_err() {
            continue;
        }
        for other in own.iter().filter(counts).filter(|other| *other != one) {
            if door.drops(&before, other).await {
                dropped.push(format!("{before} {other}"));
            }
        }
    }
    dropped
}
