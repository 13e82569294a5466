//! The number of a class, and what it owns by it. A class that came before there were numbers keeps what it had: the two exceptions
//! stand here, and nowhere else.

use base::{GroupId, kind};

/// The number of a class. A new class takes the next one, and says so itself (`Class::NUMBER`); 0 is never given. No two have the same:
/// the list of classes does not compile then. 255 is that of a class for tests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Number(pub u8);

impl Number {
    pub const SESSION: Number = Number(1);
    pub const LINEAR: Number = Number(2);
    pub const SOFT: Number = Number(3);
    pub const OBJECT: Number = Number(4);
    pub const CACHE: Number = Number(5);
    pub const SQL: Number = Number(6);

    /// Whether no two of them are the same, and none is 0.
    pub const fn are_unique(all: &[Number]) -> bool {
        let mut given = [false; 256];
        given[0] = true;
        let mut at = 0;
        while at < all.len() {
            let number = all[at].0 as usize;
            if given[number] {
                return false;
            }
            given[number] = true;
            at += 1;
        }
        true
    }

    /// The class that a frame of this kind is for.
    pub fn of_frame(frame: u16) -> Option<Number> {
        match frame {
            kind::SESSION => Some(Self::SESSION),
            kind::LINEAR_CONTROL | kind::LINEAR_DATA | kind::LINEAR_CALL => Some(Self::LINEAR),
            // Two ranges, as the lane follows from the kind: see `base::kind`.
            _ if kind::CLASSES_CONTROL.contains(&frame) => {
                Some(Number(((frame - kind::CLASSES_CONTROL.start) / 8) as u8))
            }
            _ if kind::CLASSES_DATA.contains(&frame) => Some(Number(((frame - kind::CLASSES_DATA.start) / 8) as u8)),
            _ => None,
        }
    }

    /// Frames of this class in the control lane; `nth` is below 8.
    pub const fn control(self, nth: u16) -> u16 {
        assert!(nth < 8, "a class has eight kinds of frames in each lane");
        kind::CLASSES_CONTROL.start + self.0 as u16 * 8 + nth
    }

    /// Frames of this class in the data lane; `nth` is below 8.
    pub const fn data(self, nth: u16) -> u16 {
        assert!(nth < 8, "a class has eight kinds of frames in each lane");
        kind::CLASSES_DATA.start + self.0 as u16 * 8 + nth
    }

    /// The class that a group in the node's log belongs to; none of the root group. The number stands in the top byte of the group's
    /// id. Groups of before there were numbers have 0 there, and are of class `linear`.
    pub fn of_group(group: GroupId) -> Option<Number> {
        match ((group.0 >> GROUP_SHIFT) as u8, group) {
            (0, GroupId::ROOT) => None,
            (0, _) => Some(Self::LINEAR),
            (number, _) => Some(Number(number)),
        }
    }

    /// A group of this class. `within` tells the class's groups apart, and has its top byte free.
    pub const fn group(self, within: u64) -> GroupId {
        assert!(within >> GROUP_SHIFT == 0, "the top byte of a group's id is its class's");
        GroupId((self.0 as u64) << GROUP_SHIFT | within)
    }
}

const GROUP_SHIFT: u32 = 56;

#[cfg(test)]
mod tests {
    use base::{Frame, Lane};

    use super::*;

    #[test]
    fn what_was_there_before_numbers_stays_where_it_was() {
        assert_eq!(Number::of_frame(kind::SESSION), Some(Number::SESSION));
        for kind in [kind::LINEAR_CONTROL, kind::LINEAR_DATA, kind::LINEAR_CALL] {
            assert_eq!(Number::of_frame(kind), Some(Number::LINEAR));
        }
        for kind in [kind::MEMBERSHIP, kind::BEACON, kind::ROOT, kind::ROOT_CALL, kind::DEMAND, kind::MEMBERS] {
            assert_eq!(Number::of_frame(kind), None);
        }
        assert_eq!(Number::of_group(GroupId::ROOT), None);
        assert_eq!(Number::of_group(GroupId(458_752)), Some(Number::LINEAR));
    }

    #[test]
    fn a_number_that_was_given_is_not_given_again() {
        assert!(Number::are_unique(&[Number(1), Number(255), Number(7)]));
        assert!(!Number::are_unique(&[Number(1), Number(7), Number(1)]));
        assert!(!Number::are_unique(&[Number(0)]));
    }

    #[test]
    fn a_new_class_owns_frames_and_groups_by_its_number() {
        for number in [3, 4, 31, u8::MAX] {
            let number = Number(number);
            for nth in 0..8 {
                assert_eq!(Number::of_frame(number.control(nth)), Some(number));
                assert_eq!(Number::of_frame(number.data(nth)), Some(number));
                assert_eq!(Frame::new(number.control(nth), "").lane(), Lane::Control);
                assert_eq!(Frame::new(number.data(nth), "").lane(), Lane::Data);
            }
            assert_eq!(Number::of_group(number.group(7)), Some(number));
        }
    }
}
