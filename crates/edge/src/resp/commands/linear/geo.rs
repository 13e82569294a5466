//! Places on the earth, kept as scores of sorted sets. What is wrong with a number is said before the key is looked at.

use state::linear::functions::geo::degrees;
use state::linear::geo::{Place, Trig, distance};
use state::linear::score;

use super::*;

const ONE_SHARD: &str = "both keys must be in one shard";

pub const ALL: &[Spec] = &[
    spec(
        "GEOADD",
        -5,
        Keys::One,
        Does::Write,
        "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
        "gives members places; how many are new",
        add,
    ),
    spec("GEOPOS", -2, Keys::One, Does::Read, "key [member ...]", "longitude and latitude of members", |call| {
        one(call, "sorted.scores", |got| {
            each_place(got, |place| {
                let [lon, lat] = [place.lon, place.lat].map(|one| double(degrees(one)));
                Reply::List(vec![lon, lat])
            })
        })
    }),
    spec("GEOHASH", -2, Keys::One, Does::Read, "key [member ...]", "places of members as geohashes", |call| {
        one(call, "sorted.scores", |got| match each_place(got, |place| Reply::text(place.geohash())) {
            // Here one that is not there is a nil text.
            Reply::List(all) => {
                Reply::List(all.into_iter().map(|one| if one == Reply::NilList { Reply::Nil } else { one }).collect())
            }
            other => other,
        })
    }),
    spec(
        "GEODIST",
        -4,
        Keys::One,
        Does::Read,
        "key member member2 [M | KM | FT | MI]",
        "how far two members are from each other",
        |call| {
            let command = call.command;
            let then: Then = match (command.len(), meters_of(command.arg(4))) {
                (4, _) => |got| apart(got, 1.0),
                (5, Err(error)) => return Act::Now(error),
                (5, Ok(KM)) => |got| apart(got, KM),
                (5, Ok(FT)) => |got| apart(got, FT),
                (5, Ok(MI)) => |got| apart(got, MI),
                (5, Ok(_)) => |got| apart(got, 1.0),
                _ => return syntax_error(),
            };
            one_with(call, "sorted.scores", vec![command.value(2), command.value(3)], then)
        },
    ),
    spec(
        "GEOSEARCH",
        -7,
        Keys::One,
        Does::Read,
        "key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius M | KM | FT | MI | BYBOX width height unit \
         [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        "members with places in a circle or a box",
        |call| search(call, Form { name: "GEOSEARCH", key: 1, to: None, options: 2 }),
    ),
    noted(
        spec(
            "GEOSEARCHSTORE",
            -8,
            Keys::Two,
            Does::Write,
            "to key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius M | KM | FT | MI | BYBOX width height unit \
             [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
            "stores what GEOSEARCH gives; how many",
            |call| search(call, Form { name: "GEOSEARCHSTORE", key: 2, to: Some(1), options: 3 }),
        ),
        ONE_SHARD,
    ),
    noted(
        spec(
            "GEORADIUS",
            -6,
            Keys::AndStored(6),
            Does::Write,
            "key longitude latitude radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] \
             [STORE to | STOREDIST to]",
            "members with places in a circle",
            |call| search(call, Form { name: "GEORADIUS", key: 1, to: None, options: 6 }),
        ),
        ONE_SHARD,
    ),
    spec(
        "GEORADIUS_RO",
        -6,
        Keys::One,
        Does::Read,
        "key longitude latitude radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        "the same, which stores nothing",
        |call| search(call, Form { name: "GEORADIUS_RO", key: 1, to: None, options: 6 }),
    ),
    noted(
        spec(
            "GEORADIUSBYMEMBER",
            -5,
            Keys::AndStored(5),
            Does::Write,
            "key member radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] \
             [STORE to | STOREDIST to]",
            "members with places in a circle around one",
            |call| search(call, Form { name: "GEORADIUSBYMEMBER", key: 1, to: None, options: 5 }),
        ),
        ONE_SHARD,
    ),
    spec(
        "GEORADIUSBYMEMBER_RO",
        -5,
        Keys::One,
        Does::Read,
        "key member radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        "the same, which stores nothing",
        |call| search(call, Form { name: "GEORADIUSBYMEMBER_RO", key: 1, to: None, options: 5 }),
    ),
];

const KM: f64 = 1_000.0;
const FT: f64 = 0.3048;
const MI: f64 = 1_609.34;

/// Of one of this unit.
fn meters_of(unit: &[u8]) -> Result<f64, Reply> {
    let units = [("M", 1.0), ("KM", KM), ("FT", FT), ("MI", MI)];
    let found = units.into_iter().find(|(name, _)| is(unit, name));
    found
        .map(|(_, meters)| meters)
        .ok_or_else(|| Reply::error("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

fn number(arg: &[u8], why: &str) -> Result<f64, Reply> {
    score::parse(arg).ok_or_else(|| Reply::error(why))
}

/// Longitude and latitude, from this argument on.
fn place_at(command: &Command, at: usize) -> Result<Place, Reply> {
    let degrees = |at| score::parse(command.arg(at)).ok_or_else(|| wrong(Wrong::NotAFloat));
    let (lon, lat) = (degrees(at)?, degrees(at + 1)?);
    Place::of(lon, lat).ok_or_else(|| Reply::Error(format!("ERR invalid longitude,latitude pair {lon:.6},{lat:.6}")))
}

// How replies read.

fn double(got: Got) -> Reply {
    match got {
        Got::Bytes(text) => Reply::Double(text),
        other => plain_one(other),
    }
}

fn place_of(score: &Got) -> Option<Place> {
    match score {
        Got::Bytes(text) => score::parse(text).map(Place::of_score),
        _ => None,
    }
}

/// Something of the place of each member that there is.
fn each_place(got: Vec<Got>, show: impl Fn(Place) -> Reply) -> Reply {
    match only(got) {
        Got::List(scores) => {
            Reply::List(scores.iter().map(|score| place_of(score).map_or(Reply::NilList, &show)).collect())
        }
        other => plain_one(other),
    }
}

fn apart(got: Vec<Got>, meters: f64) -> Reply {
    match only(got) {
        Got::List(scores) => match scores.iter().map(place_of).collect::<Vec<_>>()[..] {
            [Some(a), Some(b)] => Reply::text(format!("{:.4}", distance(a, b, Trig::SYSTEM) / meters)),
            _ => Reply::Nil,
        },
        other => plain_one(other),
    }
}

/// What was found; where there is a list in an item, it is a place.
fn found(got: Vec<Got>) -> Reply {
    let part = |part| match part {
        Got::List(place) => Reply::List(place.into_iter().map(double).collect()),
        other => plain_one(other),
    };
    let item = |item| match item {
        Got::List(parts) => Reply::List(parts.into_iter().map(part).collect()),
        other => plain_one(other),
    };
    match only(got) {
        Got::Nil => Reply::List(Vec::new()),
        Got::Int(_) => no_member(),
        Got::List(items) => Reply::List(items.into_iter().map(item).collect()),
        other => plain_one(other),
    }
}

fn stored(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::Nil => no_member(),
        other => plain_one(other),
    }
}

fn no_member() -> Reply {
    Reply::error("ERR could not decode requested zset member")
}

// How steps are made.

fn add(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let (mut nx, mut xx, mut ch, mut at) = (false, false, false, 2);
    while at < command.len() {
        let flags = [("NX", &mut nx), ("XX", &mut xx), ("CH", &mut ch)];
        match flags.into_iter().find(|(name, _)| is(command.arg(at), name)) {
            Some((_, flag)) => *flag = true,
            None => break,
        }
        at += 1;
    }
    let left = command.len() - at;
    if left == 0 || !left.is_multiple_of(3) || (nx && xx) {
        return syntax_error();
    }
    let when = if nx { "absent" } else { ["any", "present"][usize::from(xx)] };
    let mut args = vec![word(when), word("any")];
    for at in (at..command.len()).step_by(3) {
        match place_at(command, at) {
            Ok(place) => args.extend([word(place.score().to_string()), command.value(at + 2)]),
            Err(error) => return Act::Now(error),
        }
    }
    one_with(call, "sorted.add", args, if ch { sorted::changed } else { sorted::added })
}

/// How a search is written.
struct Form {
    name: &'static str,
    /// Arguments: the key that is searched, one that is always stored to, and the first option.
    key: usize,
    to: Option<usize>,
    options: usize,
}

/// A search as far as it was read.
#[derive(Default)]
struct Search {
    center: Option<[Bytes; 3]>,
    shape: Option<([Bytes; 3], f64)>,
    order: &'static str,
    count: i64,
    any: bool,
    /// Distance, hash and place.
    shows: [bool; 3],
    to: Option<usize>,
    distances: bool,
}

fn search(call: &mut Call<'_>, form: Form) -> Act {
    match Search::read(call.command, &form) {
        Ok(search) => search.act(call, &form),
        Err(error) => Act::Now(error),
    }
}

fn at_place(place: Place) -> [Bytes; 3] {
    [word("place"), word(place.lon.to_string()), word(place.lat.to_string())]
}

fn around(member: Bytes) -> [Bytes; 3] {
    [word("member"), member, word("-")]
}

/// `radius unit` at this argument.
fn circle(command: &Command, at: usize) -> Result<([Bytes; 3], f64), Reply> {
    let radius = number(command.arg(at), "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Reply::error("ERR radius cannot be negative"));
    }
    let meters = meters_of(command.arg(at + 1))?;
    Ok(([word("circle"), word(radius.abs().to_string()), word("0")], meters))
}

/// `width height unit` at this argument.
fn a_box(command: &Command, at: usize) -> Result<([Bytes; 3], f64), Reply> {
    let width = number(command.arg(at), "ERR need numeric width")?;
    let height = number(command.arg(at + 1), "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(Reply::error("ERR height or width cannot be negative"));
    }
    let meters = meters_of(command.arg(at + 2))?;
    Ok(([word("box"), word(width.abs().to_string()), word(height.abs().to_string())], meters))
}

impl Search {
    fn read(command: &Command, form: &Form) -> Result<Self, Reply> {
        let mut search = Self { order: "none", to: form.to, ..Self::default() };
        let by_words = form.name.starts_with("GEOSEARCH");
        match form.options {
            6 => (search.center, search.shape) = (Some(at_place(place_at(command, 2)?)), Some(circle(command, 4)?)),
            5 => (search.center, search.shape) = (Some(around(command.value(2))), Some(circle(command, 3)?)),
            _ => (),
        }
        let may_store = !by_words && !form.name.ends_with("_RO");
        let (mut is_place, mut is_member, mut is_box, mut is_circle) = (false, false, false, false);
        let mut at = form.options;
        while at < command.len() {
            let (word, behind) = (command.arg(at), command.len() - at - 1);
            let takes = |name: &str, args: usize| is(word, name) && behind >= args;
            at += 1;
            if is(word, "WITHDIST") {
                search.shows[0] = true;
            } else if is(word, "WITHHASH") {
                search.shows[1] = true;
            } else if is(word, "WITHCOORD") {
                search.shows[2] = true;
            } else if is(word, "ANY") {
                search.any = true;
            } else if is(word, "ASC") {
                search.order = "asc";
            } else if is(word, "DESC") {
                search.order = "desc";
            } else if takes("COUNT", 1) {
                search.count = integer(command.arg(at)).ok_or_else(not_an_integer)?;
                if search.count <= 0 {
                    return Err(Reply::error("ERR COUNT must be > 0"));
                }
                at += 1;
            } else if may_store && (takes("STORE", 1) || takes("STOREDIST", 1)) {
                (search.to, search.distances) = (Some(at), is(word, "STOREDIST"));
                at += 1;
            } else if form.to.is_some() && is(word, "STOREDIST") {
                search.distances = true;
            } else if by_words && !is_place && takes("FROMMEMBER", 1) {
                (search.center, is_member) = (Some(around(command.value(at))), true);
                at += 1;
            } else if by_words && !is_member && takes("FROMLONLAT", 2) {
                (search.center, is_place) = (Some(at_place(place_at(command, at)?)), true);
                at += 2;
            } else if by_words && !is_box && takes("BYRADIUS", 2) {
                (search.shape, is_circle) = (Some(circle(command, at)?), true);
                at += 2;
            } else if by_words && !is_circle && takes("BYBOX", 3) {
                (search.shape, is_box) = (Some(a_box(command, at)?), true);
                at += 3;
            } else {
                return Err(Reply::error("ERR syntax error"));
            }
        }
        let said = || String::from_utf8_lossy(command.arg(0)).into_owned();
        if search.to.is_some() && search.shows.contains(&true) {
            let what = if by_words { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Reply::Error(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if search.center.is_none() {
            let why = format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {}", said());
            return Err(Reply::Error(why));
        }
        if search.shape.is_none() {
            let why = format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {}", said());
            return Err(Reply::Error(why));
        }
        if search.any && search.count == 0 {
            return Err(Reply::error("ERR the ANY argument requires COUNT argument"));
        }
        Ok(search)
    }

    fn act(self, call: &Call<'_>, form: &Form) -> Act {
        let (Some(center), Some((shape, meters))) = (self.center, self.shape) else { return syntax_error() };
        let mut args = [center, shape].concat();
        let any = if self.any { "any" } else { "all" };
        args.extend([word(meters.to_string()), word(self.order), word(self.count.to_string()), word(any)]);
        let key = call.command.key(form.key);
        let Some(to) = self.to else {
            let shows = ["dist", "hash", "place"].into_iter().zip(self.shows);
            args.extend(shows.filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| word(name)));
            return steps(call, vec![Step::new(key, "geo.search", args)], found);
        };
        args.insert(0, key);
        args.push(word(if self.distances { "distances" } else { "scores" }));
        steps(call, vec![Step::new(call.command.key(to), "geo.store", args)], stored)
    }
}
