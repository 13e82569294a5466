//! What clients ask of class `object`: objects that are put once (and put again by whoever did not hear), read in part or whole,
//! deleted and listed. Judging what came back is for `promises::object`.
//!
//! A part of the seeds has it, told by the seed and no draw: what the others do stays what it was. Their nodes make small packs, so that
//! bytes are always on their way into one or out of it, and keep directories, however few there are.

use base::checksum::place_hash_pair;
use base::{Outcome, Rng, Span};
use bytes::Bytes;
use state::Settings;
use state::object::{Action, Body, Id, Op, Reply};

/// The namespace whose objects are written once.
pub const BOX: &str = "box";
/// One seed in so many has the load.
const ONE_IN: u64 = 3;
const OWNERS: u64 = 4;
/// Of the objects below the second number, one in so many has more than a piece takes.
const LARGE: (u64, u64) = (40, 400);
const LARGE_BYTES: u64 = 1_300_000;
/// Half of what is read or deleted is among so many of the newest.
const NEWEST: u64 = 40;
/// More than an owner has.
const LISTED_MAX: usize = 100_000;
/// Nodes keep directories in small clusters, too.
const DIRECTORIES_FROM: usize = 2;
const PACK_BYTES: u64 = 256 << 10;
const WASTE_BYTES: u64 = 128 << 10;
/// Looks at all entries take several turns, as they do where there are many.
const WALK_ENTRIES: usize = 16;

/// Whether this seed's clients use the class.
pub fn is_in(seed: u64) -> bool {
    place_hash_pair(b"object", seed).is_multiple_of(ONE_IN)
}

/// What nodes are told where the class is used.
pub fn settings(settings: &mut Settings) {
    (settings.object.pack_bytes, settings.object.waste_bytes) = (PACK_BYTES, WASTE_BYTES);
    settings.object.directories_from = DIRECTORIES_FROM;
    settings.object.walk_entries = WALK_ENTRIES;
}

/// Of an object, from 1 on in the order in which they were first put.
pub type Number = u64;

/// What one client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Put(Number),
    /// From this byte on.
    Get(Number, u32),
    Delete(Number),
    /// All objects of this owner.
    List(u64),
}

impl Act {
    pub fn name(&self) -> &'static str {
        match self {
            Act::Put(_) => "object-put",
            Act::Get(..) => "object-get",
            Act::Delete(_) => "object-delete",
            Act::List(_) => "object-list",
        }
    }

    pub fn op(&self) -> Op {
        let (owner, action) = match *self {
            Act::Put(number) => (owner(number), Action::Put { id: id(number), body: Body::from(body(number)) }),
            Act::Get(number, at) => (owner(number), Action::Get { id: id(number), at }),
            Act::Delete(number) => (owner(number), Action::Delete { id: id(number) }),
            Act::List(owner) => (owner, Action::List { after: None, limit: LISTED_MAX }),
        };
        let owner = Bytes::from(format!("owner{owner}"));
        Op { namespace: BOX.into(), owner, action, priority: base::Priority::NORMAL }
    }
}

pub fn owner(number: Number) -> u64 {
    number % OWNERS
}

/// Objects of an owner are in no order of their making.
pub fn id(number: Number) -> Id {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&place_hash_pair(b"id", number).to_be_bytes());
    id[8..].copy_from_slice(&number.to_be_bytes());
    Id(id)
}

/// The number of which this is the id.
pub fn number(of: Id) -> Number {
    u64::from_be_bytes(*of.0.last_chunk().expect("an id has sixteen bytes"))
}

pub fn size(number: Number) -> u64 {
    let drawn = place_hash_pair(b"object size", number);
    match drawn % 64 {
        _ if number < LARGE.1 && number.is_multiple_of(LARGE.0) => LARGE_BYTES,
        0 => 0,
        1..9 => 20_000 + drawn / 64 % 40_000,
        _ => 1 + drawn / 64 % 3_000,
    }
}

/// Its bytes follow from its number, and no two places of it look alike.
pub fn body(number: Number) -> Bytes {
    let size = size(number) as usize;
    let mut bytes = Vec::with_capacity(size + 8);
    let mut words = Rng::new(number);
    while bytes.len() < size {
        bytes.extend(words.u64().to_be_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

/// For the history: what came of it, without the bytes.
pub fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Object { version, size, body, .. } => format!("object {version} {} of {size}", body.len()),
        Reply::List(list) => format!("list {} missing {:?}", list.objects.len(), list.missing),
        reply => format!("{reply:?}"),
    }
}

struct Client {
    rng: Rng,
    pause: Span,
    /// Nobody has said what came of this put.
    in_doubt: Option<Number>,
}

pub struct ObjectLoad {
    clients: Vec<Client>,
    last: Number,
}

impl ObjectLoad {
    /// Nobody asks anything in a run without it.
    pub fn new(seed: u64, is_on: bool) -> Self {
        let mut rng = Rng::new(place_hash_pair(b"object load", seed));
        let pause = Span::millis(*rng.pick(&[150, 400, 800]).expect("it is not empty"));
        let clients = if is_on { rng.between(2, 4) } else { 0 };
        Self { clients: (0..clients).map(|_| Client { rng: rng.fork(), pause, in_doubt: None }).collect(), last: 0 }
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    pub fn pause(&mut self, client: usize) -> Span {
        let Client { rng, pause, .. } = &mut self.clients[client];
        Span(rng.between(pause.0 / 10, pause.0 * 2))
    }

    /// A number below `n`, from this client's chance.
    pub fn choose(&mut self, client: usize, n: usize) -> usize {
        self.clients[client].rng.below(n as u64) as usize
    }

    pub fn draw(&mut self, client: usize) -> (Act, Span) {
        let last = self.last;
        let Client { rng, in_doubt, .. } = &mut self.clients[client];
        let budget = Span::millis(*rng.pick(&[2_000, 4_000]).expect("it is not empty"));
        let drawn = rng.below(20);
        // A number that may not have been put yet is right, too.
        let oldest = if rng.chance(0.5) { last.saturating_sub(NEWEST) } else { 0 };
        let one = oldest + 1 + rng.below(last.saturating_sub(oldest) + 1);
        let act = match drawn {
            0..8 => match in_doubt.take() {
                Some(number) => Act::Put(number),
                None => {
                    self.last += 1;
                    Act::Put(self.last)
                }
            },
            8..11 => Act::Delete(one),
            11..18 => Act::Get(one, if rng.chance(0.3) { rng.below(size(one) + 1) as u32 } else { 0 }),
            _ => Act::List(rng.below(OWNERS)),
        };
        (act, budget)
    }

    /// Whoever does not know what came of a put asks again.
    pub fn has_heard(&mut self, client: usize, act: &Act, outcome: Option<&Outcome<Reply>>) {
        if let (Act::Put(number), None | Some(Outcome::Unknown(_))) = (act, outcome) {
            self.clients[client].in_doubt = Some(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_their_numbers_and_bodies_have_their_sizes() {
        for n in 1..200 {
            assert_eq!(number(id(n)), n);
            assert_eq!(body(n).len() as u64, size(n));
        }
        assert!(size(40) as usize > state::object::limits::PIECE_BYTES && (1..200).any(|n| size(n) == 0));
    }

    #[test]
    fn whoever_did_not_hear_asks_again() {
        let mut load = ObjectLoad::new(1, true);
        load.has_heard(0, &Act::Put(77), None);
        let again = (0..200).map(|_| load.draw(0).0).filter(|act| *act == Act::Put(77)).count();
        assert_eq!(again, 1);
    }
}
