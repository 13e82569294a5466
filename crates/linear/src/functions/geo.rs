//! Places in sorted sets (`geo/`). What is looked for: a center (`member NAME -` or `place LON LAT`), a shape (`circle RADIUS -` or `box WIDTH
//! HEIGHT`), meters of its unit, an order, how many (0: all), and whether any of them will do.

use super::sorted::{number, of, store};
use super::*;
use crate::geo::{Extent, Place, Shape, Trig, whole};
use crate::partly;
use crate::sorted::{Scored, Sorted};

type Found<T> = std::result::Result<T, Wrong>;

pub const ALL: &[Function] = &[
    // Nothing, if there is no such key; 0, if there is no such member. With each member what else is asked for.
    since(
        7,
        read(
            "geo.search",
            "member|place A B circle|box W H METERS asc|desc|none count any|all [dist] [hash] [place]",
            |space, key, args| {
                let (search, shows) = Search::read(args)?;
                if shows.iter().any(|show| !matches!(&show[..], b"dist" | b"hash" | b"place")) {
                    return Err(Wrong::Arguments);
                }
                let Some(sorted) = of(space, key)? else { return Ok(Reply::Nil) };
                let Some((points, meters)) = search.run(sorted, Trig::SYSTEM) else { return Ok(Reply::Int(0)) };
                let shown = |point: Point| {
                    let member = Reply::Bytes(point.member);
                    if shows.is_empty() {
                        return member;
                    }
                    let show = |show: &Bytes| match &show[..] {
                        b"dist" => Reply::Bytes(format!("{:.4}", point.distance / meters).into()),
                        b"hash" => Reply::Int(whole(point.score)),
                        _ => Reply::List([point.place.lon, point.place.lat].map(degrees).into()),
                    };
                    Reply::List([member].into_iter().chain(shows.iter().map(show)).collect())
                };
                Ok(Reply::List(points.into_iter().map(shown).collect()))
            },
        ),
    ),
    // Becomes what was found, with the scores that it has, or distances. Nothing, if there is no such member.
    since(
        7,
        Function {
            keys: 1,
            ..write(
                "geo.store",
                "from member|place A B circle|box W H METERS asc|desc|none count any|all scores|distances",
                |space, key, args| {
                    let (from, args) = args.split_first().ok_or(Wrong::Arguments)?;
                    let (search, what) = Search::read(args)?;
                    let distances = match &one(what)?[..] {
                        b"scores" => false,
                        b"distances" => true,
                        _ => return Err(Wrong::Arguments),
                    };
                    let Some(sorted) = of(space, from)? else { return store(space, key, Vec::new()) };
                    let Some((points, meters)) = search.run(sorted, Trig::OWN) else { return Ok(Reply::Nil) };
                    let scored = |point: Point| {
                        let score = if distances { point.distance / meters } else { point.score };
                        Scored { member: point.member, score }
                    };
                    store(space, key, points.into_iter().map(scored).collect())
                },
            )
        },
    ),
];

/// As Redis writes a degree: 17 places behind the point, but no zeros at the end.
pub fn degrees(degrees: f64) -> Reply {
    let text = format!("{degrees:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    Reply::Bytes(if text == "-0" { "0" } else { text }.to_owned().into())
}

enum Center<'a> {
    Member(&'a Bytes),
    At(Place),
}

struct Search<'a> {
    center: Center<'a>,
    extent: Extent,
    meters: f64,
    /// From the nearest on, or from the farthest.
    order: Option<bool>,
    /// 0: all.
    count: usize,
    any: bool,
}

struct Point {
    member: Bytes,
    score: f64,
    place: Place,
    /// Meters.
    distance: f64,
}

impl<'a> Search<'a> {
    /// And what stands behind it.
    fn read(args: &'a [Bytes]) -> Found<(Self, &'a [Bytes])> {
        let [center, a, b, shape, width, height, meters, order, count, any, rest @ ..] = args else {
            return Err(Wrong::Arguments);
        };
        let length = |text: &Bytes| number(text).ok().filter(|length| *length >= 0.0).ok_or(Wrong::Arguments);
        let search = Self {
            center: match &center[..] {
                b"member" => Center::Member(a),
                b"place" => Center::At(Place::of(number(a)?, number(b)?).ok_or(Wrong::Arguments)?),
                _ => return Err(Wrong::Arguments),
            },
            extent: match &shape[..] {
                b"circle" => Extent::Circle { radius: length(width)? },
                b"box" => Extent::Box { width: length(width)?, height: length(height)? },
                _ => return Err(Wrong::Arguments),
            },
            meters: number(meters).ok().filter(|meters| *meters > 0.0).ok_or(Wrong::Arguments)?,
            order: match &order[..] {
                b"asc" => Some(true),
                b"desc" => Some(false),
                b"none" => None,
                _ => return Err(Wrong::Arguments),
            },
            count: usize::try_from(unsigned(count)?).unwrap_or(usize::MAX),
            any: match &any[..] {
                b"any" => true,
                b"all" => false,
                _ => return Err(Wrong::Arguments),
            },
        };
        Ok((search, rest))
    }

    /// What it finds, and meters of its unit; none, if its center is not there.
    fn run(&self, sorted: &Sorted, trig: Trig) -> Option<(Vec<Point>, f64)> {
        let center = match self.center {
            Center::Member(member) => Place::of_score(sorted.score(member)?),
            Center::At(place) => place,
        };
        let shape = Shape { center, extent: self.extent, meters: self.meters };
        let wider = shape.wider();
        let mut points = Vec::new();
        let enough = if self.any && self.count > 0 { self.count } else { usize::MAX };
        for scores in shape.scores(trig) {
            let (from, to) = (Bound::Included(scores.start as f64), Bound::Excluded(scores.end as f64));
            for item in sorted.items(sorted.between_scores(from, to)) {
                if points.len() >= enough {
                    break;
                }
                let place = Place::of_score(item.score);
                if wider.holds(place, Trig::SYSTEM).is_none() {
                    continue;
                }
                if let Some(distance) = shape.holds(place, trig) {
                    points.push(Point { member: item.member.clone(), score: item.score, place, distance });
                }
            }
        }
        let count = if self.count == 0 { points.len() } else { self.count.min(points.len()) };
        // So many of them are the nearest, unless any will do.
        let order = self.order.or((self.count > 0 && !self.any).then_some(true));
        match order {
            Some(true) => partly::sort(&mut points, 0..count, |a, b| a.distance.total_cmp(&b.distance)),
            Some(false) => partly::sort(&mut points, 0..count, |a, b| b.distance.total_cmp(&a.distance)),
            None => (),
        }
        points.truncate(count);
        Some((points, self.meters))
    }
}
