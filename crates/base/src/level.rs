//! The level of a program: what all members of a group must understand alike. Nodes of adjacent versions run side by side; the
//! root group agrees on the highest level that all of them have, and only what came with that level, or before, is put into logs.
//!
//! It is raised by one with anything new that a member of an older program would take otherwise than the others: a function of
//! the state (`linear/src/functions/`), an argument of one, a kind of log entry, a kind of value in a snapshot. What a
//! function of an older level does is never changed: the new way gets a name of its own. Functions and arguments are held back
//! (`functions::too_new`), and with them the kinds of values that only these make; the first entry of another kind has to look at what was
//! agreed before it is written, too.
//!
//! Programs from before there were levels count as level 1, but end by nobody's word, and count a version more where `set.move` finds its
//! member in the target already; and some of level 2 know nothing of `once.keep` as a condition or of `passed`, add numbers with a point in binary, or cut ranges of bits that end before
//! the beginning otherwise. None was released; `docs/guide/what-survives-what.md` says how to come from one.
//!
//! | level | came with | what |
//! | --- | --- | --- |
//! | 1 | 0.1 | all that its fixtures (`tests/fixtures/0.1`) hold |
//! | 2 | after it | `hash.random`, `hash.take`, `hold`, `release`, `size`, `list.positions`, `list.pop-first`, `set.count-inter`, `set.store-*`, `text.find-bit`, `text.bit-op`, `count.ending`; `put`, `expire` and `get-expire` with `passed`; `expire ... xxlt`, `put` and `remove` with `equal:`, `differs:`, `digest:` and `digest-differs:`, `set.random ... again`, `text.bits ... byte\|bit`; the kind beside a session value (`session/src/op.rs`); what a brick is told that it lacks (`session/src/copies.rs`) |
//! | 3 | after it | channels cross nodes: frames of kinds `CHANNELS` and `MESSAGES` (`channels/src/wire.rs`) |
//! | 4 | after it | `bytes_max` and `keys_max` of a namespace: what a group may hold, in entries (`linear/src/wire.rs`), and what a brick says that has no more of it (`session/src/wire.rs`); services have `sandbox` (`clones/src/sandbox.rs`); sorted sets (`linear/src/sorted.rs`): a kind of value, and the functions `sorted.*`, which alone make one; `dump`, `load`, `versions.above` (`linear/src/dump.rs`); declarations with `answer_timeout`, `idle_timeout`, `body_max`, or more of `health` than a path (`clones/src/spec.rs`); namespaces of class `cache`, and its frames (`cache/src/wire.rs`); class `soft` may be declared: its frames (`soft/src/wire.rs`); namespaces of class `object`, with frames and records of their own (`object/src/wire.rs`) |
//! | 5 to 16 | after it | the lists below, a line for each |
//!
//! Level 5:
//!
//! - ledgers (`linear/src/ledger.rs`): a kind of value, and the functions `ledger.*`, and `load` of one, which alone make one
//! - scripts of class `linear`: the functions `script.*`, and the answer `Undone` (`linear/src/functions/script.rs`, `linear/src/op.rs`)
//! - streams (`linear/src/stream/`): a kind of value, and the functions `stream.*`, which alone make one, but for `load` of a dump
//! - `cache` of a service (`clones/src/cache.rs`), and marks in the frames of class `cache` (`cache/src/wire.rs`)
//! - what nodes say of their checkpoints of class `soft`, and the key `checkpoint` (`soft/src/wire.rs`)
//! - services have doors with names, and `certificates` (`clones/src/tcp.rs`, `clones/src/spec.rs`)
//!
//! Level 6:
//!
//! - lists of class `soft` (`soft/src/list.rs`): a kind of cell, which older nodes take no frame with; frames that compare what nodes have that have seen the same (`soft/src/mend.rs`)
//! - the last number that a namespace was given is kept (`node/src/numbers.rs`): no number is given twice, and what lies under one that is over may go
//! - turns of an object's homes, and records of copies that were dropped (`object/src/wire.rs`)
//! - services may be workers (`clones/src/worker.rs`), and have pipelines (`clones/src/pipeline.rs`): a kind of record
//! - texts of scripts and libraries that a shard keeps: the functions `scripts.*` and `library.*`, which alone make some (`linear/src/texts.rs`)
//! - `shards = "auto"` of class `linear` (`linear/src/spec.rs`)
//! - services have `access_log` (`clones/src/access.rs`)
//! - services have secrets: their records, `secret_files`, and `${...}` in `env` and `run` (`clones/src/secrets.rs`, `node/src/secrets.rs`)
//!
//! Level 7:
//!
//! - services have `before`, and run at times: their records, and frames of kind `RUNS` (`clones/src/runs/mod.rs`, `node/src/runs.rs`)
//! - services and partitions have `ask` and `ask_late`, services `openapi` (`clones/src/asks.rs`, `clones/src/spec.rs`)
//! - objects of more than 1 MiB go in pieces (`object/src/{ship,stage}.rs`): frames, and a form of record
//! - namespaces of class `sql`: the functions `sql.*`, and a database in entries and snapshots (`linear/src/functions/sql.rs`, `linear/src/database.rs`). How a batch ends is
//!   the same at every replica: so another version of SQLite, or another bound in `sql/src/limits.rs`, is another level
//! - certificates of the cluster: their records (`node/src/certificates.rs`), and those that are declared to come by themselves (`clones/src/certificate.rs`)
//! - more of what Redis does with values: the functions `geo.*`, `sketch.*`, `sort`, `sort.store`, `text.common`, `text.fields` and `text.change-fields` (`linear/src/functions/`)
//!
//! Level 8:
//!
//! - one node alone fetches what a cache lacks: a verb and an end in the frames of class `cache` (`cache/src/{claims,wire}.rs`)
//! - pipelines have `on_fail = "near"` (`clones/src/pipeline.rs`)
//! - changes of class `linear` say which function made them: `changes` and `changes.prefix` with `now+by` and `wait+by` (`linear/src/functions/changes.rs`)
//! - what statements of a `sql.batch` keep in memory is bounded, where it says `bounded` (`sql/src/limits.rs`)
//! - bytes of objects lie in packs beside the log (`object/src/store.rs`): a form of record
//!
//! Level 9:
//!
//! - there may be two authorities while one takes the other's place (`node/src/authority.rs`)
//! - a service's token may follow from a salt besides the operator's (`node/src/renewed.rs`)
//! - services have `limits` and `user` (`clones/src/bounds.rs`)
//! - what a node says stands as long as it lives and is heard, and is compared by one sum (`cluster/src/beacon/`)
//! - what nodes say of services goes in parts where it is long (`clones/src/parts.rs`), so there may be more services and clones
//! - what shows over TLS that names are ours (`node/src/acme.rs`): a kind of record, and the key `challenge` of a certificate
//! - programs of nodes are put there and chosen by tunnel (`coppice/src/program_desk.rs`)
//!
//! Level 10:
//!
//! - databases of class `sql` are dumped and loaded: the functions `sql.dump` and `sql.load` (`linear/src/functions/sql.rs`)
//! - profiles: their records, `profile` of services and of steps of pipelines (`clones/src/profile.rs`)
//! - what is held of class `soft` (`soft/src/held.rs`): a mark of entries and of removals
//! - what a node says of its stages goes without their names (`node/src/facts.rs`)
//! - large commands of class `linear` go into logs in pieces (`linear/src/piece.rs`): a kind of entry, and pieces in snapshots
//!
//! Level 11:
//!
//! - nodes say how many updates of class `soft` they have made, so that a reader knows how old what it gets may be (`soft/src/stale.rs`)
//! - managers of owners of class `object` are told who has whose objects (`object/src/owners.rs`): frames
//!
//! Level 12:
//!
//! - fields of hashes of class `linear` end by themselves: a kind of value, and the functions `hash.expire` and its like (`linear/src/functions/hash_ends.rs`)
//! - objects are watched (`object/src/watch.rs`): frames
//! - what SQLite makes of statements of a `sql.batch` before they run is bounded, where it says `weighed` (`sql/src/weight.rs`)
//! - whole states of class `soft` are compared by a sketch: frames (`soft/src/compare.rs`), and operations are passed to nodes that can do them (`soft/src/pass.rs`)
//!
//! Level 13:
//!
//! - queues of jobs of class `linear` (`linear/src/queue/`): a kind of value, and the functions `queue.*`, which alone make one
//! - namespaces have `databases` (`class/src/databases.rs`)
//! - a database that is loaded is looked at as statements are, where `sql.load` says `weighed` (`sql/src/database/outside.rs`)
//!
//! Level 14:
//!
//! - a checkpoint of class `object` has many entries in one record (`object/src/batch.rs`): a form of record
//! - services say which queues of jobs they work on: `queues` (`clones/src/backlog.rs`)
//! - steps of pipelines gather parts: `gather`, `need`, `name` (`clones/src/pipeline.rs`)
//! - nodes that are away for too long are gone, and told so: a kind of record, and frames of kind `ANEW` (`node/src/away.rs`)
//! - lives of nodes that are over are folded in contexts of class `soft` (`soft/src/over.rs`): in frames, checkpoints and cursors
//! - pushes of class `soft` go by way of another node (`soft/src/relay.rs`): a kind of frame
//!
//! Level 15:
//!
//! - services have `downlink` (`clones/src/spec.rs`)
//! - cursors that are numbers, of class `linear`: the functions `walk`, `hash.walk`, `set.walk` and `sorted.walk` (`linear/src/functions/walk.rs`)
//! - keys of class `linear` have up to 64 KiB (`linear/src/machine/calls.rs`)
//!
//! Level 16:
//!
//! - counters of class `soft` have one slot for lives of a node that are over (`soft/src/tally.rs`): in frames and checkpoints
//! - namespaces of class `cache` have `disk_max` (`cache/src/disk.rs`)

/// What this program has. A node may take part with less, as an older program would (`coppice run --level`).
pub const LEVEL: u32 = 16;

const _: () = assert!(LEVEL >= 1, "what says nothing of its level has 1");
