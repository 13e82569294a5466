//! Ledgers by the SDK: what is asked, and what becomes of the answers.

use std::net::SocketAddr;

use sdk::{
    Added, FolderChanges, FolderEnd, Ledger, Linear, LinearError, Marking, NewItem, Node, Numbers, ObjectId, Objects,
};

use crate::scripted::Does::{self, Answers, Dies};
use crate::scripted::Scripted;

fn ann(at: impl IntoIterator<Item = SocketAddr>) -> Ledger {
    Linear::<()>::new(Node::at(at).unwrap(), "boxes", "secret").ledger("ann")
}

fn id(n: u8) -> ObjectId {
    ObjectId([n; 16])
}

fn hex(n: u8) -> String {
    format!("{n:02x}").repeat(16)
}

fn says(result: &str) -> Does {
    Answers(200, "", String::leak(format!(r#"{{"result":{result}}}"#)))
}

/// What was called: the function and its arguments.
fn called(node: &Scripted) -> Vec<String> {
    let call = |asked: &String| {
        let Some((_, body)) = asked.split_once(" {") else { return asked.clone() };
        let body: serde_json::Value = serde_json::from_str(&format!("{{{body}")).unwrap();
        let args = body["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
        [body["function"].as_str().unwrap()].into_iter().chain(args).collect::<Vec<_>>().join(" ")
    };
    node.asked().iter().map(call).collect()
}

const INFO: &str = r#"[9,2,1,[[1,"INBOX",1000,4,9,2,30,0,1,3,[2,1,0,0,0,0,0,0]],[4,"Trash",1001,1,2,0,0,0,0,0,[0,0,0,0,0,0,0,0]]],["Work"]]"#;

#[tokio::test]
async fn what_a_ledger_says_is_read() {
    let gone = hex(3);
    let script = [
        says("null"),
        says(INFO),
        says("[1,1000,0]"),
        says(r#""taken""#),
        says(&format!("[9,[[1,\"{}\",3,7,10,100]],2]", hex(1))),
        says("[9,4,\"1,3\"]"),
        says(&format!("[9,[[3,\"{}\",1,8,20,101]],\"2\",3]", hex(2))),
        says("[11,[],\"2\",0]"),
        says(r#""old""#),
        says(r#"[[1,3],["gone"],[]]"#),
        says(&format!("[\"{gone}\"]")),
        says("[8,null]"),
    ];
    let node = Scripted::new(&script);
    let ann = ann([node.at]);
    assert_eq!(ann.info().await, Ok(None));
    let info = ann.info().await.unwrap().unwrap();
    assert_eq!((info.change, info.items, info.open, &info.keywords[..]), (9, 2, 1, &["Work".to_owned()][..]));
    let inbox = info.folder("INBOX").unwrap();
    assert_eq!((inbox.id, inbox.validity, inbox.next, inbox.items, inbox.marked[0]), (1, 1000, 4, 2, 2));
    assert!(inbox.is_subscribed && !info.folder("Trash").unwrap().is_subscribed);
    assert_eq!(ann.create_folder("INBOX", 7).await, Ok((1, 1000)));
    assert_eq!(ann.rename_folder(4, "INBOX").await, Ok(FolderEnd::Taken));
    let page = ann.list(1, 0, 1).await.unwrap().unwrap();
    assert_eq!((page.items[0].number, page.items[0].object, page.rest), (1, id(1), Some(2)));
    assert_eq!(ann.numbers(1).await.unwrap().unwrap().1.to_string(), "1,3");
    let Some(FolderChanges::Since { change, items, removed }) = ann.changes(1, 7).await.unwrap() else { panic!() };
    assert_eq!((change, items.len(), removed.to_string().as_str()), (9, 1, "2"), "of the first page");
    assert_eq!(ann.changes(1, 1).await, Ok(Some(FolderChanges::TooOld)));
    assert_eq!(ann.find(&[id(1), id(2), id(3)]).await, Ok(vec![Some(vec![(1, 3)]), None, Some(Vec::new())]));
    assert_eq!(ann.open(Some(id(1)), 5).await, Ok(vec![id(3)]));
    assert_eq!(ann.keywords(&["Work", "Play"]).await, Ok(vec![Some(8), None]));
    let asked = called(&node);
    assert_eq!(asked[2..4], ["ledger.folder.create INBOX 7", "ledger.folder.rename 4 INBOX"]);
    assert_eq!(asked[6..8], ["ledger.changes 1 7 0 1000", "ledger.changes 1 7 3 1000"]);
    assert_eq!(asked[10], format!("ledger.open after {} 5", hex(1)));
}

#[tokio::test]
async fn what_is_large_is_done_in_steps_and_reads_are_asked_again_elsewhere() {
    let (dies, node) = (
        Scripted::new(&[Dies]),
        Scripted::new(&[
            says("[7,[1,11,2,12],3]"),
            says("[8,[9,13],0]"),
            says("[9,\"1:2\",\"3\",5]"),
            says("[10,\"5\",\"\",0]"),
            says(&format!("[11,\"5\",[\"{}\"],0]", hex(1))),
            says("null"),
            says(r#""more""#),
            says(r#""absent""#),
        ]),
    );
    let ann = ann([dies.at, node.at]);
    let numbers: Numbers = "1:2,5:9".parse().unwrap();
    let copied = ann.copy(1, 4, &numbers).await.unwrap().unwrap();
    assert_eq!((copied.change, copied.pairs), (8, vec![(1, 11), (2, 12), (9, 13)]));
    let marked = ann.mark(1, &numbers, Marking::Add(8), Some(6)).await.unwrap().unwrap();
    assert_eq!((marked.changed.to_string(), marked.conflicts.to_string()), ("1:2,5".into(), "3".into()));
    let removed = ann.remove(1, &Numbers::one(5), 8).await.unwrap().unwrap();
    assert_eq!((removed.numbers.to_string(), removed.objects), ("5".into(), vec![id(1)]));
    assert_eq!(ann.move_to(1, 9, &numbers).await, Ok(None));
    assert_eq!(ann.delete_folder(4).await, Ok(FolderEnd::Done));
    assert_eq!(
        called(&node),
        [
            "ledger.copy 1 4 1:2,5:9",
            "ledger.copy 1 4 5:9",
            "ledger.mark 1 6 add 8 1:2,5:9",
            "ledger.mark 1 6 add 8 5:9",
            "ledger.remove 1 8 5",
            "ledger.move 1 9 1:2,5:9",
            "ledger.folder.delete 4",
            "ledger.folder.delete 4",
        ]
    );
}

#[tokio::test]
async fn objects_get_numbers_in_the_order_of_their_arrival_and_removals_are_finished() {
    // 1 has a number; 2 and 4 have none, 4 came first; 3 was removed and is still there; 5 was removed and is nowhere; 6 has a number,
    // but was deleted by somebody who could not reach the ledger; 7 has one, too, and is only out of sight.
    let version = |ms: u64| format!("{ms:016x}{}", "0".repeat(24));
    let object =
        |n: u8, ms| format!(r#"{{"id":"{}","version":"{}","bytes":{}}}"#, hex(n), version(ms), 10 * u32::from(n));
    let there = [object(1, 1_000), object(2, 9_000), object(3, 2_000), object(4, 5_000)].join(",");
    let had = |number: u8, n: u8| format!("[{number},\"{}\",0,3,10,1]", hex(n));
    let list = format!("[9,[{},{},{}],0]", had(1, 1), had(2, 6), had(3, 7));
    let script = |complete: &str| {
        [
            says(INFO),
            says("[9,[],0]"),
            says(&list),
            Answers(200, "", String::leak(format!(r#"{{"objects":[{there}],{complete}}}"#))),
            says(r#"[["gone"],["new",1,4],["new",1,5]]"#),
            says(&format!("[\"{}\"]", hex(5))),
            Answers(204, "etag: \"8a\"\r\ncoppice-copies: 2\r\n", ""),
            Answers(404, "", "{}"),
            says("1"),
            Answers(410, "", ""),
            Answers(200, "etag: \"8a\"\r\n", ""),
            says("[12,1]"),
        ]
    };
    let node = Scripted::new(&script(r#""complete":true"#));
    let objects = Objects::new(Node::at([node.at]).unwrap(), "mail", "post");
    let numbered = ann([node.at]).number(&objects).await.unwrap();
    assert_eq!(numbered.new, [(id(4), 1, 4), (id(2), 1, 5)]);
    assert_eq!((numbered.deleted, numbered.closed, numbered.removed), (1, 1, 1));
    let at = |method: &str, n| format!("{method} /v1/ns/mail/objects/ann/{}", hex(n));
    assert_eq!(
        called(&node)[3..],
        [
            "GET /v1/ns/mail/objects/ann?limit=1000".to_owned(),
            format!("ledger.add {} 1 30 2 0 {} 1 40 5 0 {} 1 20 9 0", hex(3), hex(4), hex(2)),
            format!("ledger.open first {} 256", hex(0)),
            at("DELETE", 3),
            at("DELETE", 5),
            format!("ledger.close {}", hex(5)),
            at("HEAD", 6),
            at("HEAD", 7),
            format!("ledger.remove-objects {}", hex(6)),
        ]
    );
    // Who does not know all closes nothing, and takes nothing for deleted.
    let node = Scripted::new(&script(r#""complete":false,"missing":["n2"]"#));
    let objects = Objects::new(Node::at([node.at]).unwrap(), "mail", "post");
    let folder = |_: &sdk::ObjectHead, item: NewItem| NewItem { folder: 4, marks: 1, ..item };
    let numbered = ann([node.at]).number_as(&objects, folder).await.unwrap();
    assert_eq!((numbered.closed, numbered.removed, numbered.missing), (0, 0, vec!["n2".to_owned()]));
    let asked = called(&node);
    assert_eq!((asked.len(), &asked[4][..45]), (8, &format!("ledger.add {} 4", hex(3))[..]), "{asked:?}");
}

#[tokio::test]
async fn without_a_ledger_or_a_folder_there_are_no_numbers() {
    let empty = r#"[0,0,0,[],[]]"#;
    let node = Scripted::new(&[
        says("null"),
        says(empty),
        Answers(200, "", r#"{"objects":[],"complete":true}"#),
        says("[]"),
        says(r#"[["nowhere"]]"#),
    ]);
    let objects = Objects::new(Node::at([node.at]).unwrap(), "mail", "post");
    let ann = ann([node.at]);
    assert!(matches!(ann.number(&objects).await, Err(LinearError::Refused(_))));
    assert_eq!(ann.number(&objects).await.map(|numbered| numbered.new), Ok(Vec::new()), "there is nothing to number");
    let item = NewItem { object: id(1), folder: 1, size: 1, date: 1, marks: 0 };
    assert_eq!(ann.add(&[item]).await, Ok(vec![Added::Nowhere]));
}
