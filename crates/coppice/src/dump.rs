//! `coppice ns dump` and `ns load`: a namespace as a file. A node reads it out and puts it back
//! (`edge/src/api/dump.rs`); here each byte is checked on its way, a file appears whole or not at all, and one that
//! is to be loaded is read to its end before it is sent.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use edge::api::dump::Loaded;
use serde_json::json;
use state::class::dump::{Counts, Flaw, Head, Reader, Record};
use tokio::sync::mpsc;

use crate::client::{Api, Pieces};
use crate::happened::clock;
use crate::ns::name;
use crate::operate::NodeArgs;
use crate::plain::{complain, plain, say};
use crate::since::{Changes, Index, Mark, Merged};
use crate::size::Size;

/// Of a file, at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that were read and not sent yet.
const PIECES_AHEAD: usize = 4;
/// A dump that breaks off, as a shard has another leader or is split, begins again, so often.
const DUMP_TRIES: u32 = 4;
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, clap::Args)]
pub struct DumpArgs {
    /// Name of the namespace
    name: String,
    /// Where to; without it to standard output
    file: Option<PathBuf>,
    /// So much a second at most, like 20MiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub rate: Size,
    /// Print what was dumped as JSON (not without FILE)
    #[arg(long, requires = "file")]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub struct LoadArgs {
    /// Name that the namespace had when it was dumped
    name: String,
    /// What `ns dump` has written
    file: PathBuf,
    /// Into this namespace, which is declared and of the same class
    #[arg(long = "as", value_name = "OTHER")]
    other: Option<String>,
    /// So much a second at most, like 5MiB. Without it half of the time is left to others that use the cluster
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    /// As fast as the cluster takes it, though others have to wait
    #[arg(long)]
    full_speed: bool,
    /// Print what was loaded as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub async fn dump_command(args: DumpArgs) -> Result<(), String> {
    let api = args.node.operator()?;
    let Some(file) = &args.file else {
        if io::stdout().is_terminal() {
            return Err("a dump is not to be read by people: name a FILE, or send it on with `|` or `>`".into());
        }
        let (mut out, mut progress) = (io::stdout().lock(), Progress::of("dumped", &args.name));
        let mut dumping = Dumping::begin(&api, &args.name, args.rate).await?;
        dumping.write(&mut out, &mut progress, None).await?;
        return out.flush().map_err(|e| format!("cannot write: {e}"));
    };
    let wanted = Wanted { rate: args.rate, all: true, index: None };
    let Dumped { head, counts, .. } = dump_to(&api, &args.name, &wanted, file).await?.ok_or("it was left out")?;
    if args.json {
        say!("{}", told(&head, &counts));
    } else {
        say!("{}: {} keys, {} bytes, in {}", head.namespace, counts.items, counts.bytes, file.display());
    }
    Ok(())
}

/// What is told of a dump for programs.
pub fn told(head: &Head, counts: &Counts) -> serde_json::Value {
    json!({
        "namespace": head.namespace,
        "class": head.class,
        "at_ms": head.at_ms,
        "keys": counts.items,
        "bytes": counts.bytes,
    })
}

/// How a namespace is dumped into a file.
pub struct Wanted<'a> {
    pub rate: Size,
    /// Also if its class keeps nothing on disk.
    pub all: bool,
    /// Only what is not as it is here.
    pub index: Option<&'a Index>,
}

pub struct Dumped {
    pub head: Head,
    /// Of the namespace, whatever of it is in the file.
    pub counts: Counts,
    /// With an index: what it has, and the namespace has no more.
    pub gone: Vec<Mark>,
}

/// Dumps into a file, which is there when all of it is on the disk. Nothing, if its class keeps nothing on disk and
/// that is not wanted.
pub async fn dump_to(api: &Api, namespace: &str, wanted: &Wanted<'_>, file: &Path) -> Result<Option<Dumped>, String> {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let done = dump_into(api, namespace, wanted, &part).await;
    if !matches!(done, Ok(Some(_))) {
        let _ = std::fs::remove_file(&part);
        return done;
    }
    std::fs::rename(&part, file).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    done
}

async fn dump_into(api: &Api, namespace: &str, wanted: &Wanted<'_>, file: &Path) -> Result<Option<Dumped>, String> {
    let cannot = |e: io::Error| format!("cannot write {}: {e}", file.display());
    let mut progress = Progress::of("dumped", namespace);
    let mut tries = 1;
    loop {
        let mut dumping = Dumping::begin(api, namespace, wanted.rate).await?;
        if !wanted.all && !dumping.head.on_disk {
            return Ok(None);
        }
        // Values are nobody else's business.
        let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
        let mut out = open.map_err(cannot)?;
        let mut changes = wanted.index.map(Changes::since);
        match dumping.write(&mut out, &mut progress, changes.as_mut()).await {
            Ok(counts) => {
                out.sync_all().map_err(cannot)?;
                let gone = changes.map_or_else(Vec::new, |changes| changes.gone());
                return Ok(Some(Dumped { head: dumping.head, counts, gone }));
            }
            Err(Failed::Broken(why)) if tries < DUMP_TRIES => {
                complain!("coppice: {namespace} is dumped anew: {}", plain(&why));
                tries += 1;
                tokio::time::sleep(TRY_AGAIN).await;
            }
            Err(failed) => return Err(failed.into()),
        }
    }
}

/// Why a dump did not come to its end.
enum Failed {
    /// The node could not go on, or went away: it may go better next time.
    Broken(String),
    Other(String),
}

impl From<Failed> for String {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Broken(why) | Failed::Other(why) => why,
        }
    }
}

/// A dump that comes from a node.
struct Dumping {
    head: Head,
    pieces: Pieces,
    reader: Reader,
    /// What came and was not written yet.
    held: Vec<Bytes>,
}

impl Dumping {
    async fn begin(api: &Api, namespace: &str, rate: Size) -> Result<Self, String> {
        let mut pieces = api.open(&format!("/v1/ns/{}/dump?rate={}", name(namespace)?, rate.0)).await?;
        let (mut reader, mut held) = (Reader::default(), Vec::new());
        loop {
            if let Some(record) = reader.next_record().map_err(|flaw| flaw.to_string())? {
                let Record::Head(head) = record else { return Err("the node's dump has no head".into()) };
                return Ok(Self { head, pieces, reader, held });
            }
            let piece = pieces.next().await?.ok_or("the node's answer broke off")?;
            reader.push(&piece);
            held.push(piece);
        }
    }

    /// All that comes, or with `changes` what they make of it.
    async fn write(
        &mut self,
        out: &mut impl Write,
        progress: &mut Progress,
        mut changes: Option<&mut Changes<'_>>,
    ) -> Result<Counts, Failed> {
        let cannot = |e: io::Error| Failed::Other(format!("cannot write: {e}"));
        let flawed = |flaw: Flaw| match flaw {
            Flaw::Broken(why) => Failed::Broken(why),
            Flaw::Cut { .. } => Failed::Broken("the node's answer broke off".into()),
            other => Failed::Other(format!("what the node sent cannot be believed: {other}")),
        };
        let (mut changed, mut pieces) = (BytesMut::new(), std::mem::take(&mut self.held));
        if let Some(changes) = changes.as_deref_mut() {
            changes.take(&Record::Head(self.head.clone()), &mut changed);
            pieces.clear();
        }
        loop {
            while let Some(record) = self.reader.next_record().map_err(flawed)? {
                if let Some(changes) = changes.as_deref_mut() {
                    changes.take(&record, &mut changed);
                }
            }
            for piece in pieces.drain(..).chain([changed.split().freeze()]) {
                out.write_all(&piece).map_err(cannot)?;
            }
            progress.tell(self.reader.counts());
            let Some(piece) = self.pieces.next().await.map_err(Failed::Broken)? else { break };
            self.reader.push(&piece);
            if changes.is_none() {
                pieces.push(piece);
            }
        }
        std::mem::take(&mut self.reader).end().map_err(flawed)
    }
}

pub async fn load_command(args: LoadArgs) -> Result<(), String> {
    let api = args.node.operator()?;
    let (head, counts) = check(&args.file)?;
    let to = args.other.as_deref().unwrap_or(&args.name);
    if head.namespace != args.name {
        return Err(format!(
            "{} is a dump of namespace {}: to load it as {to}, say `coppice ns load {} FILE --as {to}`",
            args.file.display(),
            plain(&head.namespace),
            plain(&head.namespace),
        ));
    }
    let loaded =
        load(&api, to, Source::File(args.file.clone()), (&head.class, counts.bytes), (args.rate, args.full_speed))
            .await?;
    if args.json {
        say!("{}", json!({"namespace": to, "keys": loaded.keys, "ended": loaded.ended, "at_ms": head.at_ms}));
    } else {
        let at = clock(head.at_ms);
        say!("{to}: {} keys as they were at {at}; {} more have ended since", loaded.keys, loaded.ended);
    }
    Ok(())
}

/// Reads all of a file, and changes nothing.
pub fn check(file: &Path) -> Result<(Head, Counts), String> {
    let mut head = None;
    let counts = each(file, &mut |record| {
        if let Record::Head(of) = record {
            head = Some(of);
        }
        true
    })?;
    Ok((head.ok_or_else(|| format!("{}: this dump has no head", file.display()))?, counts))
}

/// Reads a file to its end, record by record, or until no more is wanted.
pub fn each(file: &Path, take: &mut dyn FnMut(Record) -> bool) -> Result<Counts, String> {
    let cannot = |e: io::Error| format!("cannot read {}: {e}", file.display());
    let flawed = |flaw: Flaw| format!("{}: {flaw}", file.display());
    let mut from = File::open(file).map_err(cannot)?;
    let (mut reader, mut piece) = (Reader::default(), vec![0; PIECE_BYTES]);
    loop {
        let len = from.read(&mut piece).map_err(cannot)?;
        if len == 0 {
            return reader.end().map_err(flawed);
        }
        reader.push(&piece[..len]);
        while let Some(record) = reader.next_record().map_err(flawed)? {
            if !take(record) {
                return Ok(reader.counts());
            }
        }
    }
}

/// What is loaded: files that were checked.
pub enum Source {
    File(PathBuf),
    Merged(Merged),
}

impl Source {
    /// Gives the bytes of the dump piece by piece, until no more are taken.
    fn pour(&self, give: &mut dyn FnMut(Bytes) -> bool) -> Result<(), String> {
        let file = match self {
            Source::Merged(merged) => return merged.pour(give),
            Source::File(file) => file,
        };
        let cannot = |e: io::Error| format!("cannot read {}: {e}", file.display());
        let mut from = File::open(file).map_err(cannot)?;
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let len = from.read(&mut piece).map_err(cannot)?;
            piece.truncate(len);
            if len == 0 || !give(piece.into()) {
                return Ok(());
            }
        }
    }
}

/// Puts what was checked, of this class and about so many bytes, into a namespace.
pub async fn load(
    api: &Api,
    namespace: &str,
    from: Source,
    (class, bytes): (&str, u64),
    (rate, full_speed): (Option<Size>, bool),
) -> Result<Loaded, String> {
    // The node says the same, but to whom it says so in the middle of a large body may not hear it.
    let is = api.get(&format!("/v1/ns/{}", name(namespace)?)).await?.json()?;
    if is["class"] != class {
        let (class, is) = (plain(class), is["class"].as_str().unwrap_or_default());
        return Err(format!("this dump is of class {class}, and namespace {namespace} is of class {}", plain(is)));
    }
    let path = format!("/v1/ns/{}/load{}", name(namespace)?, if full_speed { "?full=true" } else { "" });
    let (pieces, taken) = mpsc::channel(PIECES_AHEAD);
    let mut progress = Progress { of: bytes, ..Progress::of("loaded", namespace) };
    let read = tokio::task::spawn_blocking(move || {
        let (mut sent, mut next) = (0, Instant::now());
        from.pour(&mut |piece: Bytes| {
            sent += piece.len() as u64;
            if let Some(Size(rate)) = rate {
                // What was missed of the pace is not made up for.
                next = next.max(Instant::now()) + Duration::from_secs_f64(piece.len() as f64 / rate.max(1) as f64);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            progress.tell(Counts { bytes: sent, ..Counts::default() });
            // Who takes no more says why in his answer.
            pieces.blocking_send(piece).is_ok()
        })
    });
    let (reply, read) = tokio::join!(api.send(&path, taken), read);
    let answer = reply?.json()?;
    read.map_err(|e| format!("cannot read what is to be loaded: {e}"))??;
    serde_json::from_value(answer).map_err(|e| format!("the node's answer is of another version: {e}"))
}

/// Tells on standard error how far it is, if it takes long.
struct Progress {
    done: &'static str,
    namespace: String,
    /// Bytes in all, if that is known.
    of: u64,
    told: Instant,
}

impl Progress {
    fn of(done: &'static str, namespace: &str) -> Self {
        Self { done, namespace: namespace.to_owned(), of: 0, told: Instant::now() }
    }

    fn tell(&mut self, counts: Counts) {
        if self.told.elapsed() < TELL_EVERY {
            return;
        }
        self.told = Instant::now();
        let (name, done, mib) = (&self.namespace, self.done, counts.bytes >> 20);
        match self.of >> 20 {
            0 => complain!("coppice: {name}: {} keys, {mib} MiB {done}", counts.items),
            of => complain!("coppice: {name}: {mib} of {of} MiB {done}"),
        }
    }
}
