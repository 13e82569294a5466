//! Places on the earth, kept as scores of a sorted set in the way of Redis: 26 bits of the latitude and as many of the longitude, in
//! turn, so that what is near has mostly near scores. Which scores a search has to look at, and how far two places are from each
//! other. Numbers come out as Redis', to the last bit where nothing is stored ([`Trig`]).

use std::ops::Range;

mod trig;

pub use trig::Trig;

pub const LON_MAX: f64 = 180.0;
/// As far from the equator as the projection of maps on the web goes.
pub const LAT_MAX: f64 = 85.05112878;

/// Halvings of each coordinate in a score.
const STEPS: u32 = 26;

/// Degrees. Invariant: of one that [`Place::of`] made, no number is beyond its limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place {
    pub lon: f64,
    pub lat: f64,
}

/// What is looked for around a place. Lengths are in a unit of so many meters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    pub center: Place,
    pub extent: Extent,
    pub meters: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Extent {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

impl Place {
    /// None, if it is outside of what a score can say.
    pub fn of(lon: f64, lat: f64) -> Option<Self> {
        let is_inside = lon.abs() <= LON_MAX && lat.abs() <= LAT_MAX;
        is_inside.then_some(Self { lon, lat })
    }

    pub fn score(self) -> u64 {
        encode(self, LON_MAX, LAT_MAX, STEPS).bits
    }

    /// The middle of what has this score. Any score means some place, as in Redis.
    pub fn of_score(score: f64) -> Self {
        let area = Cell { bits: bits_of(score), step: STEPS }.area();
        let middle = |(min, max): (f64, f64), most: f64| ((min + max) / 2.0).clamp(-most, most);
        Self { lon: middle(area.lon, LON_MAX), lat: middle(area.lat, LAT_MAX) }
    }

    /// As others write it, who let the latitude go to 90: 11 characters, the last of which is always `0`.
    pub fn geohash(self) -> String {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = encode(self, 180.0, 90.0, STEPS).bits;
        let char = |at: u32| char::from(ALPHABET[(bits >> (52 - (at + 1) * 5)) as usize & 31]);
        (0..10).map(char).chain(['0']).collect()
    }
}

/// A score as a whole number, as Redis' machines make it of one that is none.
pub fn whole(score: f64) -> i64 {
    if (-TWO_TO_63..TWO_TO_63).contains(&score) { score as i64 } else { i64::MIN }
}

fn bits_of(score: f64) -> u64 {
    if score < TWO_TO_63 { whole(score) as u64 } else { (whole(score - TWO_TO_63) ^ i64::MIN) as u64 }
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// One of the parts that the earth is cut into by so many halvings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cell {
    bits: u64,
    step: u32,
}

/// Between these degrees.
struct Area {
    lon: (f64, f64),
    lat: (f64, f64),
}

const OF_LON: u64 = 0xAAAA_AAAA_AAAA_AAAA;
const OF_LAT: u64 = 0x5555_5555_5555_5555;

impl Cell {
    fn area(self) -> Area {
        let (lat, lon) = (every_second(self.bits), every_second(self.bits >> 1));
        let parts = (1_u64 << self.step) as f64;
        let edge = |at: u32, most: f64| -most + f64::from(at) / parts * (most - -most);
        let both = |at: u32, most| (edge(at, most), edge(at.wrapping_add(1), most));
        Area { lon: both(lon, LON_MAX), lat: both(lat, LAT_MAX) }
    }

    /// Its neighbour to the east (1), to the west (-1); likewise to the north and to the south. Behind the last comes the first.
    fn moved(self, east: i32, north: i32) -> Self {
        let unused = 64 - self.step * 2;
        let step = |own: u64, other: u64, by: i32| {
            let (at, gaps) = (self.bits & own, other >> unused);
            let moved = match by {
                0 => return at,
                1 => at.wrapping_add(gaps.wrapping_add(1)),
                _ => (at | gaps).wrapping_sub(gaps.wrapping_add(1)),
            };
            moved & (own >> unused)
        };
        Self { bits: step(OF_LON, OF_LAT, east) | step(OF_LAT, OF_LON, north), ..self }
    }

    fn scores(self) -> Range<u64> {
        let unused = 52 - self.step * 2;
        self.bits << unused..(self.bits + 1) << unused
    }
}

fn encode(place: Place, lon_max: f64, lat_max: f64, step: u32) -> Cell {
    let parts = (1_u64 << step) as f64;
    let at = |degrees: f64, most: f64| ((degrees - -most) / (most - -most) * parts) as u32;
    Cell { bits: spread(at(place.lat, lat_max)) | spread(at(place.lon, lon_max)) << 1, step }
}

/// A zero before each bit.
fn spread(bits: u32) -> u64 {
    SPREADS.iter().fold(u64::from(bits), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// Takes those out again.
fn every_second(bits: u64) -> u32 {
    let masks = [0x3333_3333_3333_3333, 0x0F0F_0F0F_0F0F_0F0F, 0x00FF_00FF_00FF_00FF, 0xFFFF_0000_FFFF, 0xFFFF_FFFF];
    let halve = |bits: u64, (at, mask): (usize, u64)| (bits | bits >> (1 << at)) & mask;
    masks.into_iter().enumerate().fold(bits & OF_LAT, halve) as u32
}

const SPREADS: [(u32, u64); 5] = [
    (16, 0x0000_FFFF_0000_FFFF),
    (8, 0x00FF_00FF_00FF_00FF),
    (4, 0x0F0F_0F0F_0F0F_0F0F),
    (2, 0x3333_3333_3333_3333),
    (1, OF_LAT),
];

// Distances.

/// Redis' mean radius of the earth, meters.
const EARTH: f64 = 6_372_797.560856;
const RADIAN: f64 = std::f64::consts::PI / 180.0;
/// From here on a search looks everywhere, meters.
const MERCATOR_MAX: f64 = 20_037_726.37;

/// Meters between two places, on a ball.
pub fn distance(a: Place, b: Place, trig: Trig) -> f64 {
    let v = (trig.sin)((b.lon * RADIAN - a.lon * RADIAN) / 2.0);
    if v == 0.0 {
        return lat_distance(a.lat, b.lat);
    }
    let (a_lat, b_lat) = (a.lat * RADIAN, b.lat * RADIAN);
    let u = (trig.sin)((b_lat - a_lat) / 2.0);
    let a = u * u + (trig.cos)(a_lat) * (trig.cos)(b_lat) * v * v;
    // Of places opposite of each other it may be rounded to more than 1.
    2.0 * EARTH * (trig.asin)(a.sqrt().min(1.0))
}

fn lat_distance(a: f64, b: f64) -> f64 {
    EARTH * (b * RADIAN - a * RADIAN).abs()
}

impl Shape {
    /// Meters from the center, if it is in it.
    pub fn holds(&self, place: Place, trig: Trig) -> Option<f64> {
        match self.extent {
            Extent::Circle { radius } => {
                let distance = distance(self.center, place, trig);
                (distance <= radius * self.meters).then_some(distance)
            }
            Extent::Box { width, height } => {
                if lat_distance(place.lat, self.center.lat) > height * self.meters / 2.0 {
                    return None;
                }
                let beside = Place { lat: place.lat, ..self.center };
                if distance(place, beside, trig) > width * self.meters / 2.0 {
                    return None;
                }
                Some(distance(self.center, place, trig))
            }
        }
    }

    /// The same with a margin: what is not in that is not in the shape, however sines are rounded.
    pub fn wider(&self) -> Self {
        let wider = |length: f64| length * (1.0 + 1e-9) + 4.0 / self.meters;
        let extent = match self.extent {
            Extent::Circle { radius } => Extent::Circle { radius: wider(radius) },
            Extent::Box { width, height } => Extent::Box { width: wider(width), height: wider(height) },
        };
        Self { extent, ..*self }
    }

    /// Scores of all that may be in it, in the order in which Redis looks at them.
    pub fn scores(&self, trig: Trig) -> Vec<Range<u64>> {
        let (radius, width, height) = match self.extent {
            Extent::Circle { radius } => (radius, radius * self.meters, radius * self.meters),
            Extent::Box { width, height } => {
                let (width, height) = (width / 2.0, height / 2.0);
                ((width * width + height * height).sqrt(), width * self.meters, height * self.meters)
            }
        };
        let Place { lon, lat } = self.center;
        // The box around it.
        let lat_delta = height / EARTH / RADIAN;
        let edge = if lat < 0.0 { lat - lat_delta } else { lat + lat_delta };
        let lon_delta = width / EARTH / (trig.cos)(edge * RADIAN) / RADIAN;
        let (lon, lat) = ((lon - lon_delta, lon + lon_delta), (lat - lat_delta, lat + lat_delta));

        let cell_of = |step| encode(self.center, LON_MAX, LAT_MAX, step);
        let mut cell = cell_of(step_of(radius * self.meters, self.center.lat));
        let area = |east, north| cell.moved(east, north).area();
        let is_near = area(0, 1).lat.1 < lat.1
            || area(0, -1).lat.0 > lat.0
            || area(1, 0).lon.1 < lon.1
            || area(-1, 0).lon.0 > lon.0;
        if cell.step > 1 && is_near {
            cell = cell_of(cell.step - 1);
        }
        let inner = cell.area();
        let is_needed = |east: i32, north: i32| {
            let is_out = (north < 0 && inner.lat.0 < lat.0)
                || (north > 0 && inner.lat.1 > lat.1)
                || (east < 0 && inner.lon.0 < lon.0)
                || (east > 0 && inner.lon.1 > lon.1);
            cell.step < 2 || !is_out
        };
        let around = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let mut cells: Vec<Cell> = Vec::with_capacity(around.len());
        for (east, north) in around.into_iter().filter(|(east, north)| is_needed(*east, *north)) {
            let next = cell.moved(east, north);
            // Where there are few, the neighbours of two sides are the same.
            if cells.len() < 2 || cells.last() != Some(&next) {
                cells.push(next);
            }
        }
        cells.into_iter().map(Cell::scores).collect()
    }
}

/// So many halvings that what is around a cell is mostly all that is so near.
fn step_of(mut meters: f64, lat: f64) -> u32 {
    if meters == 0.0 {
        return STEPS;
    }
    let mut step = -1;
    while meters < MERCATOR_MAX {
        meters *= 2.0;
        step += 1;
    }
    // Towards the poles a degree of longitude is short.
    step -= i32::from(lat.abs() > 66.0) + i32::from(lat.abs() > 80.0);
    step.clamp(1, STEPS as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_places_and_geohashes_are_those_of_redis() {
        // Of redis-server 7.0.15.
        for (lon, lat, score, hash) in [
            (13.361389, 38.115556, 3_479_099_956_230_698, "sqc8b49rny0"),
            (15.087269, 37.502669, 3_479_447_370_796_909, "sqdtr74hyu0"),
        ] {
            let place = Place::of(lon, lat).unwrap();
            assert_eq!(place.score(), score);
            let kept = Place::of_score(score as f64);
            assert_eq!(kept.geohash(), hash);
            assert!((kept.lon - lon).abs() < 1e-5 && (kept.lat - lat).abs() < 1e-5);
            assert_eq!(kept.score(), score, "what is kept is kept as it is");
        }
        let sicily = [3_479_099_956_230_698.0, 3_479_447_370_796_909.0].map(Place::of_score);
        let meters = distance(sicily[0], sicily[1], Trig::SYSTEM);
        assert_eq!(format!("{meters:.4}"), "166274.1516");
        assert_eq!(distance(sicily[0], sicily[1], Trig::OWN), meters);
    }

    #[test]
    fn what_is_outside_is_no_place_and_any_score_means_one() {
        for (lon, lat) in
            [(180.1, 0.0), (-180.1, 0.0), (0.0, 85.1), (0.0, -85.1), (f64::NAN, 0.0), (0.0, f64::INFINITY)]
        {
            assert_eq!(Place::of(lon, lat), None);
        }
        for score in [f64::NEG_INFINITY, -1.0, 0.0, 0.5, 1e15, 1e19, 1e300, f64::INFINITY] {
            let Place { lon, lat } = Place::of_score(score);
            assert!(Place::of(lon, lat).is_some(), "{score}: {lon} {lat}");
        }
        assert!(Place::of(180.0, LAT_MAX).is_some_and(|place| place.score() >= 1 << 52), "the edge is in no cell");
    }

    /// A dumb twin: whatever is in a shape is found where the search looks, and looked at once.
    #[test]
    fn nothing_that_is_near_is_missed() {
        let mut rng = base::Rng::new(7);
        let mut degrees = |most: f64| (rng.below(2_000_001) as f64 / 1_000_000.0 - 1.0) * most;
        for round in 0..2_000 {
            let center = Place::of_score(Place::of(degrees(180.0), degrees(70.0)).unwrap().score() as f64);
            let radius = 10_f64.powi(round % 7) * 1.5;
            let extent = match round % 2 {
                0 => Extent::Circle { radius },
                _ => Extent::Box { width: radius * 2.0, height: radius },
            };
            let shape = Shape { center, extent, meters: 1.0 };
            let scores = shape.scores(Trig::SYSTEM);
            for _ in 0..20 {
                let spread = radius / 100_000.0;
                let (lon, lat) = (center.lon + degrees(spread), center.lat + degrees(spread));
                let Some(place) = Place::of(lon, lat).map(|place| Place::of_score(place.score() as f64)) else {
                    continue;
                };
                if shape.holds(place, Trig::SYSTEM).is_some() {
                    assert!(shape.wider().holds(place, Trig::OWN).is_some());
                    let looks = scores.iter().filter(|scores| scores.contains(&place.score())).count();
                    assert_eq!(looks, 1, "{shape:?} {place:?}");
                }
            }
        }
    }
}
