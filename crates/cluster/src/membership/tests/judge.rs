//! Stories of what one node says of another, by mistake or as a lie.

use super::*;

fn who(n: u64, boot: u64, epoch: u32) -> who::Who {
    who::Who { card: std::sync::Arc::new(card(n, boot)), epoch }
}

/// What node 2 may say of others, as a lie or by mistake.
fn lies() -> Vec<foca::Member<who::Who>> {
    let (boots, epochs, incarnations) = ([1, 2, 1 << 62, u64::MAX], [0, 1, u32::MAX], [0, 1, 9, u16::MAX]);
    let states = [foca::State::Alive, foca::State::Suspect, foca::State::Down];
    let mut all = Vec::new();
    for (boot, epoch) in boots.into_iter().flat_map(|boot| epochs.map(|epoch| (boot, epoch))) {
        for (incarnation, state) in incarnations.into_iter().flat_map(|it| states.map(|state| (it, state))) {
            all.push(foca::Member::new(who(3, boot, epoch), incarnation, state));
        }
    }
    all
}

/// A word of a death, a life number, an epoch or an incarnation that it can never outbid: none makes a node unheard that speaks.
#[test]
fn who_speaks_for_itself_lives_whatever_another_says_of_it() {
    for (seed, news) in (0..).zip(lies()) {
        let mut net = Net::met(4, seed);
        for to in [1, 4, 3] {
            let head = wire::tell(&who(2, 1, 0), &who(to, 1, 0), &news);
            net.give(id(to), Input::Frame { from: id(2), head });
        }
        net.run(Span::secs(2));
        assert_eq!((net.deaths(), &net.bad), (0, &vec![]), "{news:?}");
        net.assert_all_live();
        net.restart(id(3));
        net.run(Span::secs(3));
        net.assert_all_live();
    }
}

#[test]
fn a_lie_about_one_that_is_away_ends_when_it_is_back() {
    for (seed, news) in (0..).zip(lies()) {
        let mut net = Net::met(4, seed);
        net.kill(id(3));
        net.run(Span::secs(3));
        for to in [1, 4] {
            net.give(id(to), Input::Frame { from: id(2), head: wire::tell(&who(2, 1, 0), &who(to, 1, 0), &news) });
        }
        net.run(Span::secs(3));
        net.start(id(3), Boot(2));
        net.run(Span::secs(12));
        net.assert_all_live();
    }
}

#[test]
fn a_word_of_a_death_counts_where_nobody_is_heard() {
    let mut net = Net::met(4, 1);
    net.cut.insert(pair(id(1), id(3)));
    net.drop_links(|a, b| (a, b) == (id(1), id(3)), LinkEnd::TimedOut);
    net.run(Span::millis(100));
    let news = foca::Member::new(who(3, 1, 0), 0, foca::State::Down);
    net.give(id(1), Input::Frame { from: id(2), head: wire::tell(&who(2, 1, 0), &who(1, 1, 0), &news) });
    assert_eq!(net.deaths(), 1);
    net.cut.clear();
    net.run(Span::secs(10));
    net.assert_all_live();
}

#[test]
fn nobody_is_brought_in_by_hearsay_who_is_not_admitted() {
    let mut net = Net::met(3, 1);
    let heard = |net: &Net, n: u64| net.nodes[&id(1)].machine.standing(id(n)).is_some();
    let named = (1..=4).map(|n| (id(n), card(n, 1).name)).collect();
    let now = std::sync::Arc::new(crate::Admission { named, ..crate::Admission::default() });
    net.give(id(1), Input::Admission { now });
    for n in [4, 5] {
        let news = foca::Member::new(who(n, 1, 0), 0, foca::State::Alive);
        net.give(id(1), Input::Frame { from: id(2), head: wire::tell(&who(2, 1, 0), &who(1, 1, 0), &news) });
    }
    assert!(heard(&net, 4) && !heard(&net, 5));
    net.give(id(1), Input::Linked { card: Box::new(card(5, 1)) });
    assert!(heard(&net, 5), "whom this node meets itself is the link's matter");
}
