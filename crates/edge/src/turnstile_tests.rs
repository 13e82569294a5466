//! Tests of [`super`]: who enters, who waits, and who passes nobody.

use futures_util::FutureExt;

use super::*;

const TOP: u8 = 9;
const LOW: u8 = 1;

/// With these rooms until it looks, which it will not do in the time of a test.
fn turnstile(room: u32, of_low: u32, waiting: [u32; 2]) -> Arc<Turnstile> {
    let turnstile = Turnstile::new(1);
    turnstile.look_at.store(u64::MAX, Relaxed);
    let mut rooms = Rooms { room: [room; CLASSES], waiting: [waiting[1]; CLASSES] };
    (rooms.room[usize::from(LOW)], rooms.waiting[usize::from(LOW)]) = (of_low, waiting[0]);
    turnstile.take(&rooms);
    Arc::new(turnstile)
}

fn at_once(turnstile: &Arc<Turnstile>, class: u8) -> Option<Result<Permit, Full>> {
    turnstile.enter(class, 0, CLONE_WAIT).now_or_never()
}

#[tokio::test]
async fn the_low_class_is_refused_where_the_top_class_is_let_in() {
    let turnstile = turnstile(3, 2, [0, 0]);
    let _low = [at_once(&turnstile, LOW).unwrap().unwrap(), at_once(&turnstile, LOW).unwrap().unwrap()];
    assert!(matches!(at_once(&turnstile, LOW), Some(Err(Full))));
    let top = at_once(&turnstile, TOP).unwrap().unwrap();
    assert!(matches!(at_once(&turnstile, TOP), Some(Err(Full))));
    top.ended(End::Done);
    assert!(at_once(&turnstile, TOP).unwrap().is_ok());
    assert_eq!(turnstile.show().refused, 2);
}

#[tokio::test]
async fn who_waits_where_nobody_is_let_in_goes_on_when_others_leave_room() {
    let turnstile = turnstile(0, 0, [5, 5]);
    let mut waits = Box::pin(turnstile.enter(TOP, 0, CLONE_WAIT));
    assert!(waits.as_mut().now_or_never().is_none());
    turnstile.take(&Rooms { room: [1; CLASSES], waiting: [5; CLASSES] });
    turnstile.door();
    assert!(waits.now_or_never().unwrap().is_ok());
}

#[tokio::test]
async fn who_waits_is_let_in_by_class_and_then_in_order() {
    let turnstile = turnstile(1, 1, [5, 5]);
    let first = at_once(&turnstile, LOW).unwrap().unwrap();
    let (mut low, mut top) =
        (Box::pin(turnstile.enter(LOW, 0, CLONE_WAIT)), Box::pin(turnstile.enter(TOP, 0, CLONE_WAIT)));
    assert!(low.as_mut().now_or_never().is_none() && top.as_mut().now_or_never().is_none());
    assert!(at_once(&turnstile, TOP).is_none(), "nobody passes those who wait");
    drop(first);
    let second = top.now_or_never().expect("let in").unwrap();
    assert!(low.as_mut().now_or_never().is_none());
    second.ended(End::Done);
    assert!(low.now_or_never().expect("let in").is_ok());
    assert_eq!(turnstile.under_way.load(SeqCst), 0);
}

#[tokio::test]
async fn nobody_passes_those_who_wait_where_room_has_come_that_they_have_not_heard_of() {
    let turnstile = turnstile(0, 0, [5, 5]);
    let mut first = Box::pin(turnstile.enter(LOW, 0, CLONE_WAIT));
    assert!(first.as_mut().now_or_never().is_none());
    turnstile.take(&Rooms { room: [1; CLASSES], waiting: [5; CLASSES] });
    assert!(turnstile.enter_now(LOW, 0).is_err(), "it is the first one's room");
    let mut second = Box::pin(turnstile.enter(LOW, 0, CLONE_WAIT));
    assert!(second.as_mut().now_or_never().is_none(), "and he gets it when the next one comes");
    drop(first.now_or_never().expect("let in").unwrap());
    assert!(second.now_or_never().expect("let in").is_ok());
}

#[tokio::test]
async fn who_leaves_while_he_waits_leaves_nothing_behind() {
    let turnstile = turnstile(1, 1, [0, 2]);
    let first = at_once(&turnstile, TOP).unwrap().unwrap();
    for _ in 0..10 {
        assert!(at_once(&turnstile, TOP).is_none(), "a place in the queue is free again");
    }
    first.ended(End::Gone);
    assert_eq!((turnstile.under_way.load(SeqCst), turnstile.waiting.load(SeqCst)), (0, 0));
    assert!(at_once(&turnstile, TOP).unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_longer_than_for_a_clone() {
    let turnstile = turnstile(0, 0, [0, 5]);
    let begun = tokio::time::Instant::now();
    assert!(turnstile.enter(TOP, 0, CLONE_WAIT).await.is_err());
    assert_eq!(begun.elapsed(), CLONE_WAIT);
}

#[tokio::test]
async fn a_client_over_its_share_is_refused_and_others_are_not() {
    let turnstile = turnstile(100, 100, [5, 5]);
    let entered = |class, client| turnstile.enter(class, client, CLONE_WAIT).now_or_never().unwrap().is_ok();
    for _ in 0..2 {
        turnstile.fairness.look(Some((LOW.into(), 10)));
        let count = (0..40).filter(|_| entered(LOW, 7)).count();
        assert!(count > 0 && entered(LOW, 8));
    }
    assert!(!entered(LOW, 7) && entered(LOW, 9) && entered(TOP, 7));
}

#[tokio::test]
async fn one_more_is_asked_only_while_half_is_free_and_nobody_waits_or_was_refused() {
    let turnstile = turnstile(8, 8, [5, 5]);
    turnstile.size.store(8, Relaxed);
    let asked: Vec<_> = (0..4).map(|_| at_once(&turnstile, TOP).unwrap().unwrap()).collect();
    let more = turnstile.one_more().expect("half is free");
    assert!(turnstile.one_more().is_none(), "more than half is not");
    drop((more, asked));
    assert_eq!(turnstile.under_way.load(SeqCst), 0);
    turnstile.elsewhere.store(4, Relaxed);
    let _asked = [at_once(&turnstile, TOP).unwrap().unwrap(), at_once(&turnstile, TOP).unwrap().unwrap()];
    assert!(turnstile.one_more().is_none(), "other doors have the rest");
    turnstile.elsewhere.store(0, Relaxed);
    turnstile.is_overloaded.store(true, Relaxed);
    assert!(turnstile.one_more().is_none());
    turnstile.is_overloaded.store(false, Relaxed);
    turnstile.waiting.store(1, SeqCst);
    assert!(turnstile.one_more().is_none());
    turnstile.waiting.store(0, SeqCst);
    assert!(turnstile.one_more().is_some());
}

#[tokio::test]
async fn pressure_is_what_is_under_way_besides_oneself() {
    let turnstile = turnstile(100, 100, [0, 0]);
    turnstile.size.store(10, Relaxed);
    let permits: Vec<_> = (0..6).map(|_| at_once(&turnstile, TOP).unwrap().unwrap()).collect();
    assert_eq!(turnstile.pressure(), 5);
    drop(permits);
    assert_eq!(turnstile.pressure(), 0);
}

#[test]
fn what_is_under_way_at_other_doors_counts_while_they_say_so() {
    let all = Turnstiles::default();
    let (turnstile, _) = all.of("shop", 1);
    turnstile.learned(10);
    let says = clones::doors::Says { under_way: 4000, ..Default::default() };
    let door = Doors([("shop".to_owned(), says.clone()), ("shop/pay".to_owned(), says)].into());
    all.hear(&[door.clone(), door]);
    assert_eq!((turnstile.pressure(), turnstile.for_each(1)), (8, 2));
    all.hear(&[]);
    assert_eq!((turnstile.pressure(), turnstile.for_each(1)), (0, 10));
    assert_eq!(all.tell(), Doors::default(), "what nobody has asked for is not worth telling");
}
