//! Walks by SCAN and its kin while the nodes agree on cursors that are numbers, and before.

use std::collections::BTreeSet;

use state::linear::functions::{WALK_LEVEL, too_new};

use super::changes::set_bank;
use super::*;

/// Values whose walks have more than one page, and a walk through each.
const MAKES: &[(&str, &str)] = &[("set", "SADD set"), ("hash", "HSET hash"), ("sorted", "ZADD sorted")];
const WALKS: &[(&str, usize)] = &[("SCAN", 1), ("SSCAN set", 1), ("HSCAN hash", 2), ("ZSCAN sorted", 2)];
const NAMES: usize = 60;

type Shared = Rc<RefCell<linear::Space>>;

/// The nodes agree on this level; what is newer is refused, as a node does it.
fn agree(toy: &Toy, space: &Shared, level: u32) {
    let mut view = View::clone(&toy.view.borrow());
    view.root.level = level;
    *toy.view.borrow_mut() = Arc::new(view);
    let space = Rc::clone(space);
    *toy.bank.borrow_mut() = Some(Box::new(move |step| match too_new(std::slice::from_ref(step), level) {
        Some(_) => linear::Reply::Wrong(linear::Wrong::Unknown),
        None => space.borrow_mut().step(step, Default::default()).unwrap_or_else(linear::Reply::Wrong),
    }));
}

/// The number behind this sign.
async fn count(stream: &mut TcpStream, sign: char) -> usize {
    let mut head = String::new();
    while !head.ends_with("\r\n") {
        head.push(char::from(stream.read_u8().await.unwrap()));
    }
    head.trim_end().strip_prefix(sign).unwrap_or_else(|| panic!("{sign} is wanted: {head}")).parse().unwrap()
}

async fn bulk(stream: &mut TcpStream) -> String {
    let len = count(stream, '$').await;
    let mut text = vec![0; len + 2];
    stream.read_exact(&mut text).await.unwrap();
    String::from_utf8_lossy(&text[..len]).into_owned()
}

/// A page from this cursor on: the next cursor, and the names.
async fn page(stream: &mut TcpStream, walk: &str, width: usize, cursor: &str) -> (String, Vec<String>) {
    send(stream, &[&format!("{walk} {cursor} COUNT 7")]).await;
    expect(stream, "*2\r\n", walk).await;
    let next = bulk(stream).await;
    let count = count(stream, '*').await;
    let mut names = Vec::new();
    for nth in 0..count {
        let text = bulk(stream).await;
        if nth % width == 0 {
            names.push(text);
        }
    }
    (next, names)
}

fn with_values<F: Future<Output = ()>>(test: impl FnOnce(Rc<Toy>, TcpStream, Shared) -> F) {
    with_door(|toy, mut stream| async move {
        set_bank(&toy, WALK_LEVEL);
        let space = Shared::default();
        agree(&toy, &space, WALK_LEVEL);
        sign_in_linear(&mut stream).await;
        let names: Vec<String> = (0..NAMES).map(|n| format!("name{n:02}")).collect();
        for (kind, make) in MAKES {
            let items = names.iter().map(|name| match *kind {
                "set" => format!(" {name}"),
                "hash" => format!(" {name} v"),
                _ => format!(" 1 {name}"),
            });
            send(&mut stream, &[&format!("{make}{}", items.collect::<String>())]).await;
            expect(&mut stream, &format!(":{NAMES}\r\n"), make).await;
        }
        for name in &names {
            send(&mut stream, &[&format!("SET {name} v")]).await;
            expect(&mut stream, "+OK\r\n", name).await;
        }
        test(toy, stream, space).await;
    });
}

/// All names of a walk, whose nodes agree on another level after so many pages.
async fn walk(
    toy: &Toy,
    stream: &mut TcpStream,
    space: &Shared,
    (walk, width): (&str, usize),
    levels: [u32; 2],
    after: usize,
) -> (BTreeSet<String>, usize) {
    agree(toy, space, levels[0]);
    let (mut shown, mut cursor, mut pages) = (BTreeSet::new(), "0".to_owned(), 0);
    loop {
        if pages == after {
            agree(toy, space, levels[1]);
        }
        let (next, names) = page(stream, walk, width, &cursor).await;
        assert!(next.parse::<u64>().unwrap() < 1 << 53, "clients in JavaScript would not give it back: {next}");
        shown.extend(names);
        (cursor, pages) = (next, pages + 1);
        assert!(pages < 100, "{walk}: it comes to no end");
        if cursor == "0" {
            return (shown, pages);
        }
    }
}

#[test]
fn walks_go_on_before_all_nodes_know_the_new_cursors_and_when_they_do() {
    let (old, new) = (WALK_LEVEL - 1, WALK_LEVEL);
    with_values(|toy, mut stream, space| async move {
        for one in WALKS {
            for levels in [[old, old], [old, new], [new, new], [5, new]] {
                let (shown, pages) = walk(&toy, &mut stream, &space, *one, levels, 3).await;
                let all = (0..NAMES).all(|n| shown.contains(&format!("name{n:02}")));
                assert!(all && pages > 3, "{one:?}, {levels:?}: {} in {pages} pages", shown.len());
            }
        }
    });
}

#[test]
fn a_cursor_of_the_other_way_begins_anew_and_ends_no_walk() {
    let (old, new) = (WALK_LEVEL - 1, WALK_LEVEL);
    with_values(|toy, mut stream, space| async move {
        for one in WALKS {
            // What a node gave that knows of the agreement already, to one that does not.
            let (shown, _) = walk(&toy, &mut stream, &space, *one, [new, old], 3).await;
            assert!(shown.len() >= NAMES, "{one:?}: {} of them", shown.len());
            // What a node gave that has ended since, or an older program.
            for level in [old, new] {
                agree(&toy, &space, level);
                for cursor in ["9007199254740991", "9223372036854775807", "18446744073709551615"] {
                    let (next, names) = page(&mut stream, one.0, one.1, cursor).await;
                    let (_, first) = page(&mut stream, one.0, one.1, "0").await;
                    assert!(next != "0" && names == first && !names.is_empty(), "{one:?} {cursor}: {names:?}");
                }
            }
        }
    });
}
