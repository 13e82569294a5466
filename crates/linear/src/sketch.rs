//! HyperLogLogs: texts that tell about how many different elements were added to them, in Redis' own bytes, so that one that was copied
//! from there goes on here, and back. 16,384 registers, each the longest run of zeros among hashes that begin with its number:
//! packed by 6 bits (*dense*), or while few are set as runs of equal ones (*sparse*). Anybody may store any bytes: what is no such text
//! is said to be none, and nothing is read beyond its end.

/// Magic, encoding, three zeros, and the last count, whose highest bit says that it is not that of now.
const HEAD: usize = 16;
const MAGIC: &[u8] = b"HYLL";
const ENCODING_AT: usize = 4;
const COUNT_AT: usize = 8;
const STALE: u8 = 0x80;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;

pub const REGISTERS: usize = 16_384;
const INDEX_BITS: u32 = 14;
const HASH_BITS: u32 = 64 - INDEX_BITS;
const DENSE_BYTES: usize = HEAD + REGISTERS * 6 / 8;
/// A longer sparse one becomes a dense one, as Redis has it unless told otherwise.
const SPARSE_BYTES_MAX: usize = 3_000;

/// Runs of a sparse one: of registers that are 0, by one byte or two, and of others.
const ZEROS_MAX: usize = 64;
const VALUE_MAX: u8 = 32;
const VALUES_MAX: usize = 4;

/// Its runs do not make up all registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

/// The largest value of each register among several.
pub type Merged = [u8; REGISTERS];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sketch(Vec<u8>);

#[derive(Clone, Copy)]
struct Run {
    /// 0: of zeros.
    value: u8,
    registers: usize,
    bytes: usize,
}

impl Default for Sketch {
    fn default() -> Self {
        let head = [MAGIC, &[SPARSE], &[0; HEAD - ENCODING_AT - 1]].concat();
        let mut text = head;
        zeros(&mut text, REGISTERS);
        Self(text)
    }
}

impl Sketch {
    /// None: this text is none.
    pub fn read(text: &[u8]) -> Option<Self> {
        let is_one = text.len() >= HEAD
            && text.starts_with(MAGIC)
            && (text[ENCODING_AT] == SPARSE || text[ENCODING_AT] == DENSE && text.len() == DENSE_BYTES);
        is_one.then(|| Self(text.to_vec()))
    }

    pub fn into_text(self) -> Vec<u8> {
        self.0
    }

    pub fn is_dense(&self) -> bool {
        self.0[ENCODING_AT] == DENSE
    }

    /// True, if a register has changed.
    pub fn add(&mut self, element: &[u8]) -> Result<bool, Corrupt> {
        let hash = hash(element);
        let index = (hash & (REGISTERS as u64 - 1)) as usize;
        let zeros = (hash >> INDEX_BITS | 1 << HASH_BITS).trailing_zeros();
        self.raise(index, zeros as u8 + 1)
    }

    /// The count that was kept, if it is still that of now.
    pub fn kept_count(&self) -> Option<i64> {
        let bytes: [u8; 8] = self.0[COUNT_AT..HEAD].try_into().expect("these are eight");
        (bytes[7] & STALE == 0).then(|| i64::from_le_bytes(bytes))
    }

    pub fn keep_count(&mut self, count: i64) {
        self.0[COUNT_AT..HEAD].copy_from_slice(&count.to_le_bytes());
    }

    /// The count that is kept is not that of now.
    pub fn outdate(&mut self) {
        self.0[HEAD - 1] |= STALE;
    }

    pub fn count(&self) -> Result<i64, Corrupt> {
        let mut of_value = [0_u64; 64];
        if self.is_dense() {
            (0..REGISTERS).for_each(|index| of_value[usize::from(self.dense(index))] += 1);
        } else {
            let mut all = 0;
            for (run, _) in self.runs() {
                of_value[usize::from(run.value)] += run.registers as u64;
                all += run.registers;
            }
            if all != REGISTERS {
                return Err(Corrupt);
            }
        }
        Ok(estimate(&of_value))
    }

    /// Raises those of some others to its own.
    pub fn merge_into(&self, merged: &mut Merged) -> Result<(), Corrupt> {
        if self.is_dense() {
            merged.iter_mut().enumerate().for_each(|(index, most)| *most = (*most).max(self.dense(index)));
            return Ok(());
        }
        let mut at = 0;
        for (run, _) in self.runs() {
            let end = at + run.registers;
            match merged.get_mut(at..end) {
                Some(registers) => registers.iter_mut().for_each(|most| *most = (*most).max(run.value)),
                None => return Err(Corrupt),
            }
            at = end;
        }
        if at == REGISTERS { Ok(()) } else { Err(Corrupt) }
    }

    pub fn make_dense(&mut self) -> Result<(), Corrupt> {
        if self.is_dense() {
            return Ok(());
        }
        let mut registers = [0; REGISTERS];
        self.merge_into(&mut registers)?;
        let mut text = self.0[..HEAD].to_vec();
        text[ENCODING_AT] = DENSE;
        text.resize(DENSE_BYTES, 0);
        self.0 = text;
        registers.into_iter().enumerate().for_each(|(index, value)| self.put_dense(index, value));
        Ok(())
    }

    /// True, if the register was lower.
    pub fn raise(&mut self, index: usize, value: u8) -> Result<bool, Corrupt> {
        if !self.is_dense() {
            if value <= VALUE_MAX
                && let Some(raised) = self.raise_sparse(index, value)?
            {
                return Ok(raised);
            }
            self.make_dense()?;
        }
        let is_lower = self.dense(index) < value;
        if is_lower {
            self.put_dense(index, value);
        }
        Ok(is_lower)
    }

    fn dense(&self, index: usize) -> u8 {
        let (byte, bit) = (HEAD + index * 6 / 8, index * 6 % 8);
        let next = self.0.get(byte + 1).copied().unwrap_or(0);
        (u16::from_le_bytes([self.0[byte], next]) >> bit) as u8 & 63
    }

    fn put_dense(&mut self, index: usize, value: u8) {
        let (byte, bit) = (HEAD + index * 6 / 8, index * 6 % 8);
        let [mask, next_mask] = (63_u16 << bit).to_le_bytes();
        let [low, high] = (u16::from(value) << bit).to_le_bytes();
        self.0[byte] = self.0[byte] & !mask | low;
        if next_mask != 0 {
            self.0[byte + 1] = self.0[byte + 1] & !next_mask | high;
        }
    }

    /// Runs, each with where it begins.
    fn runs(&self) -> impl Iterator<Item = (Run, usize)> + '_ {
        let mut at = HEAD;
        std::iter::from_fn(move || {
            let run = self.run(at)?;
            at += run.bytes;
            Some((run, at - run.bytes))
        })
    }

    fn run(&self, at: usize) -> Option<Run> {
        let byte = *self.0.get(at)?;
        let low = usize::from(byte & 0x3F);
        Some(match byte >> 6 {
            0 => Run { value: 0, registers: low + 1, bytes: 1 },
            1 => {
                let next = self.0.get(at + 1).copied().unwrap_or(0);
                Run { value: 0, registers: (low << 8 | usize::from(next)) + 1, bytes: 2 }
            }
            _ => Run { value: (byte >> 2 & 0x1F) + 1, registers: usize::from(byte & 3) + 1, bytes: 1 },
        })
    }

    /// None: there is no room for it in a sparse one.
    fn raise_sparse(&mut self, index: usize, value: u8) -> Result<Option<bool>, Corrupt> {
        // Each run has a register and at most two bytes: nobody is to move megabytes again and again.
        if self.0.len() > HEAD + 2 * REGISTERS {
            return Err(Corrupt);
        }
        let (mut first, mut before, mut found) = (0, None, None);
        for (run, at) in self.runs() {
            if index < first + run.registers {
                found = Some((run, at));
                break;
            }
            (before, first) = (Some(at), first + run.registers);
        }
        let (run, at) = found.ok_or(Corrupt)?;
        if run.value >= value {
            return Ok(Some(false));
        }
        let last = first + run.registers - 1;
        let mut new = Vec::with_capacity(5);
        let others = |new: &mut Vec<u8>, registers: usize| match run.value {
            _ if registers == 0 => (),
            0 => zeros(new, registers),
            value => values(new, value, registers),
        };
        others(&mut new, index - first);
        values(&mut new, value, 1);
        others(&mut new, last - index);
        if new.len() > run.bytes && self.0.len() + new.len() - run.bytes > SPARSE_BYTES_MAX {
            return Ok(None);
        }
        let end = (at + run.bytes).min(self.0.len());
        self.0.splice(at..end, new);
        self.join(before.unwrap_or(HEAD));
        self.outdate();
        Ok(Some(true))
    }

    /// Makes one of neighbours with the same value, as far as Redis looks.
    fn join(&mut self, mut at: usize) {
        for _ in 0..5 {
            let Some(run) = self.run(at) else { return };
            let next = self.run(at + run.bytes).filter(|next| run.value > 0 && next.value == run.value);
            match next.map(|next| next.registers + run.registers).filter(|both| *both <= VALUES_MAX) {
                Some(both) => {
                    let mut one = Vec::with_capacity(1);
                    values(&mut one, run.value, both);
                    self.0.splice(at..at + 2, one);
                }
                None => at += run.bytes,
            }
        }
    }
}

fn zeros(into: &mut Vec<u8>, registers: usize) {
    let less = registers - 1;
    if registers > ZEROS_MAX {
        into.extend([(less >> 8) as u8 | 0x40, less as u8]);
    } else {
        into.push(less as u8);
    }
}

fn values(into: &mut Vec<u8>, value: u8, registers: usize) {
    into.push(0x80 | (value - 1) << 2 | (registers - 1) as u8);
}

/// How many there are of one that has so many registers of each value.
pub fn estimate(of_value: &[u64; 64]) -> i64 {
    // Ertl, New cardinality estimation algorithms for HyperLogLog sketches (2017).
    let all = REGISTERS as f64;
    let most = HASH_BITS as usize;
    let mut z = all * tau((all - of_value[most + 1] as f64) / all);
    for count in of_value[1..=most].iter().rev() {
        z = (z + *count as f64) * 0.5;
    }
    z += all * sigma(of_value[0] as f64 / all);
    let estimate = (ALPHA * all * all / z).round();
    // Of registers that no element gives: as Redis' machines round what has no end.
    if estimate.is_finite() { estimate as i64 } else { i64::MIN }
}

/// Half of the inverse of the natural logarithm of 2.
const ALPHA: f64 = 0.721_347_520_444_481_7;

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// MurmurHash64A with Redis' seed.
fn hash(bytes: &[u8]) -> u64 {
    const M: u64 = 0xC6A4_A793_5BD1_E995;
    let mut hash = 0xADC8_3B19 ^ (bytes.len() as u64).wrapping_mul(M);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut k = u64::from_le_bytes(word.try_into().expect("it has eight bytes")).wrapping_mul(M);
        k = (k ^ k >> 47).wrapping_mul(M);
        hash = (hash ^ k).wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        rest.iter().enumerate().for_each(|(n, byte)| hash ^= u64::from(*byte) << (8 * n));
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize) -> Sketch {
        let mut sketch = Sketch::default();
        for n in 0..count {
            let _ = sketch.add(format!("element-{n}").as_bytes()).unwrap();
        }
        sketch
    }

    #[test]
    fn estimates_are_near_and_both_forms_say_the_same() {
        for count in [0, 1, 10, 100, 700, 1_000, 5_000, 50_000] {
            let sketch = of(count);
            let (said, apart) = (sketch.count().unwrap(), 0.03 * count as f64);
            assert!((said as f64 - count as f64).abs() <= apart, "{said} of {count}");
            assert_eq!(sketch.is_dense(), count >= 5_000, "{count}");
            let mut dense = sketch.clone();
            dense.make_dense().unwrap();
            assert_eq!((dense.count(), dense.0.len()), (Ok(said), DENSE_BYTES));
            let (mut some, mut others) = ([0; REGISTERS], [0; REGISTERS]);
            sketch.merge_into(&mut some).unwrap();
            dense.merge_into(&mut others).unwrap();
            assert!(some == others);
        }
    }

    #[test]
    fn what_was_added_changes_nothing_and_a_kept_count_is_known() {
        let mut sketch = of(500);
        let before = sketch.clone();
        assert_eq!(sketch.add(b"element-7"), Ok(false));
        assert_eq!(sketch, before);
        assert_eq!(sketch.kept_count(), None);
        sketch.keep_count(501);
        assert_eq!(sketch.kept_count(), Some(501));
        assert_eq!(sketch.add(b"another one"), Ok(true));
        assert_eq!(sketch.kept_count(), None);
        assert_eq!(Sketch::default().kept_count(), Some(0));
        assert_eq!(Sketch::read(&sketch.clone().into_text()), Some(sketch));
    }

    /// Whatever bytes stand behind a head, nothing is read or written beyond them.
    #[test]
    fn bytes_of_strangers_do_no_harm() {
        let mut rng = base::Rng::new(5);
        let mut corrupt = 0;
        for round in 0..3_000_u32 {
            let mut text = if round % 3 == 0 { of(200).0 } else { Sketch::default().0[..HEAD].to_vec() };
            let changes = rng.below(40);
            for _ in 0..changes {
                let byte = rng.below(256) as u8;
                match rng.below(text.len() as u64 + 1) as usize {
                    at if at >= HEAD && at < text.len() => text[at] = byte,
                    _ => text.push(byte),
                }
            }
            let Some(mut sketch) = Sketch::read(&text) else { panic!("its head is whole") };
            let counted = sketch.count();
            corrupt += u32::from(counted.is_err());
            assert_eq!(sketch.merge_into(&mut [0; REGISTERS]).is_err(), counted.is_err());
            for n in 0..20_u32 {
                let _ = sketch.add(&n.to_le_bytes());
            }
            let _ = sketch.raise(REGISTERS - 1, 40);
            assert!(sketch.0.len() <= text.len().max(DENSE_BYTES) + 60);
        }
        assert!(corrupt > 1_000, "{corrupt}");
        let dense = |len| [&b"HYLL\0\0\0\0"[..], &vec![0xFF; len - 8]].concat();
        for text in [
            &b""[..],
            b"HYLL",
            b"HYLX\x01\0\0\0\0\0\0\0\0\0\0\0",
            b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0",
            &dense(DENSE_BYTES - 1),
        ] {
            assert_eq!(Sketch::read(text), None);
        }
        assert_eq!(Sketch::read(&dense(DENSE_BYTES)).unwrap().count(), Ok(i64::MIN), "registers that no element gives");
    }
}
