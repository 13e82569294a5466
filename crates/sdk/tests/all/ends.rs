//! How operations end, against nodes that answer, refuse, hang and die on script: which error each failure becomes, what is
//! tried on another node, and what never is.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use sdk::axum::http::{HeaderName, HeaderValue};
use sdk::{
    BadCookie, Change, Cookie, Given, Group, Happened, Heard, Linear, LinearError, Members, Node, Outcome, ReadError,
    Service, Sessions, State, When, WriteError,
};

use crate::scripted::Does::{self, Answers, Dies, Hangs};
use crate::scripted::{PASSED_ON, Scripted};

fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn node(at: impl IntoIterator<Item = SocketAddr>) -> Node {
    Node::at(at).unwrap()
}

fn carts(at: impl IntoIterator<Item = SocketAddr>) -> Sessions<Vec<u32>> {
    Sessions::new(node(at), "carts", "secret")
}

fn bank(at: impl IntoIterator<Item = SocketAddr>) -> Linear<i64> {
    Linear::new(node(at), "bank", "secret")
}

const VALUE: Does = Answers(200, "etag: \"7\"\r\ncoppice-lease-ms: 900\r\n", "[1,2]");
const STORED: Does = Answers(204, "etag: \"8\"\r\n", "");

#[tokio::test]
async fn a_value_is_read_with_its_version_and_lease_over_one_connection() {
    let one = Scripted::new(&[VALUE, STORED]);
    let carts = carts([one.at]);
    let held = carts.get("a/b c").await.unwrap().unwrap();
    assert_eq!((held.value.as_slice(), held.lease_left), (&[1, 2][..], Duration::from_millis(900)));
    let version = carts.put_back("a/b c", &held).await.unwrap();
    assert_eq!(version.to_string(), "8");
    assert_eq!(one.asked(), ["GET /v1/ns/carts/keys/a%2Fb%20c", "PUT /v1/ns/carts/keys/a%2Fb%20c [1,2]"]);
}

#[tokio::test]
async fn what_is_done_for_a_request_matters_as_much_and_takes_no_longer() {
    let node = Scripted::new(&[VALUE, VALUE, Hangs]);
    let of = |ms: &'static str| {
        let pairs = [(PASSED_ON[0], "7"), (PASSED_ON[1], ms)];
        pairs
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect()
    };
    let carts = carts([node.at]);
    carts.during(&of("60000")).get("a").await.unwrap();
    carts.get("a").await.unwrap();
    let [first, second] = &node.asked()[..] else { panic!("{:?}", node.asked()) };
    assert!(first.contains("coppice-priority: 7"), "{first}");
    let left: u64 = first.rsplit_once("coppice-deadline-ms: ").unwrap().1.parse().unwrap();
    assert!((50_000..=60_000).contains(&left), "{first}");
    assert_eq!(second, "GET /v1/ns/carts/keys/a");
    let start = Instant::now();
    carts.during(&of("200")).get("a").await.unwrap_err();
    assert!((200..2_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    // Over before it began: nobody is asked.
    carts.during(&of("0")).get("a").await.unwrap_err();
    assert_eq!(node.asked().len(), 3);
}

#[tokio::test]
async fn each_cookie_that_opens_nothing_has_its_own_error() {
    let kinds = [
        ("cookie-truncated", BadCookie::Truncated),
        ("cookie-forged", BadCookie::Forged),
        ("cookie-foreign", BadCookie::Foreign),
        ("cookie-expired", BadCookie::Expired),
    ];
    for (kind, bad) in kinds {
        let text = format!("{{\"error\":\"no\",\"type\":\"{kind}\"}}");
        let one = Scripted::new(&[Answers(400, "", Box::leak(text.into_boxed_str()))]);
        let (carts, cookie) = (carts([one.at]), Cookie::shown("abc.def"));
        assert_eq!(carts.open(&cookie).await, Err(ReadError::Cookie(bad)));
        let saved = carts.save(&cookie, &vec![1], When::Always).await;
        assert_eq!(saved, Err(WriteError::Cookie(bad)));
        assert_eq!(saved.unwrap_err().happened(), Happened::No);
    }
}

#[tokio::test]
async fn absent_lost_conflict_and_refused_are_not_the_same() {
    let busy = Answers(503, "", r#"{"error":"too much","retry_after_ms":120}"#);
    let one = Scripted::new(&[
        Answers(404, "", "{}"),
        Answers(410, "", "{}"),
        Answers(412, "etag: \"9\"\r\n", "{}"),
        busy.clone(),
        busy,
        Answers(401, "", r#"{"error":"the token"}"#),
    ]);
    let carts = carts([one.at]);
    assert_eq!(carts.get("k").await, Ok(None));
    assert_eq!(carts.get("k").await, Err(ReadError::Lost));
    let Err(WriteError::Conflict(Some(version))) = carts.put_when("k", &vec![], When::Absent).await else { panic!() };
    assert_eq!(version.to_string(), "9");
    let Err(ReadError::Refused(refused)) = carts.get("k").await else { panic!() };
    assert_eq!((refused.why.as_str(), refused.retry_after.map(|s| s.as_millis())), ("too much", Some(120)));
    let Err(refused) = carts.put("k", &vec![]).await else { panic!() };
    assert_eq!(refused.happened(), Happened::No);
    assert!(matches!(refused.outcome::<()>(), Outcome::Refused(r) if r.retry_after.is_some()));
    let Err(ReadError::Refused(refused)) = carts.get("k").await else { panic!() };
    assert_eq!(refused.retry_after, None, "a wrong token stays wrong");
}

#[tokio::test]
async fn a_node_that_is_gone_is_passed_over() {
    let other = Scripted::new(&[STORED]);
    let bank = bank([nobody(), other.at]);
    assert_eq!(bank.put("k", &1).await, Ok(8), "it never left for the first one");
    assert_eq!(other.asked().len(), 1);
    let Err(LinearError::Refused(refused)) = bank_of_nobody().get("k").await else { panic!() };
    assert!(refused.retry_after.is_some() && refused.why.contains("cannot connect"), "{refused:?}");
}

fn bank_of_nobody() -> Linear<i64> {
    bank([nobody(), nobody()])
}

#[tokio::test]
async fn a_write_without_an_answer_is_unknown_and_is_not_sent_again() {
    let (dies, other) = (Scripted::new(&[Dies]), Scripted::new(&[STORED]));
    let error = carts([dies.at, other.at]).put("k", &vec![]).await.unwrap_err();
    assert_eq!((error.happened(), matches!(error, WriteError::Unknown(_))), (Happened::Maybe, true));
    assert_eq!((dies.asked().len(), other.asked().len()), (1, 0));
    let late = Scripted::new(&[Answers(504, "", r#"{"error":"late (it may have happened)"}"#)]);
    let error = carts([late.at]).put("k", &vec![]).await.unwrap_err();
    assert_eq!(error.happened(), Happened::Maybe);
    assert!(matches!(carts([late.at]).get("k").await, Err(ReadError::Refused(_))), "a read changes nothing");
}

#[tokio::test]
async fn a_linear_write_has_an_id_and_is_asked_until_somebody_knows_what_came_of_it() {
    let late = || Answers(504, "", r#"{"error":"late (it may have happened)"}"#);
    let busy = || Answers(503, "", r#"{"error":"busy"}"#);
    // The node dies; another one does not know in time, or has no room now, and then does.
    let (dies, other) = (Scripted::new(&[Dies]), Scripted::new(&[late(), busy(), STORED]));
    assert_eq!(bank([dies.at, other.at]).put("k", &1).await.unwrap(), 8);
    let ids = [dies.ids(), other.ids()].concat();
    assert!(ids.len() >= 4 && ids.iter().all(|id| *id == ids[0] && id.len() == 36), "{ids:?}");
    assert_eq!(bank([other.at]).put("k", &1).await.unwrap(), 8);
    assert_ne!(other.ids().last(), ids.first(), "each write has its own");
    // Of what was asked once, a refusal by another node says nothing.
    let (dies, other) = (Scripted::new(&[Dies]), Scripted::new(&[busy()]));
    let error = bank([dies.at, other.at]).add("k", 1).await.unwrap_err();
    assert!(matches!(error, LinearError::Unknown(_)), "{error:?}");
    // Nobody had it: it did not happen, and there is no need to ask again and again.
    let refuses = Scripted::new(&[busy()]);
    assert!(matches!(bank([refuses.at]).remove("k").await, Err(LinearError::Refused(_))));
    assert_eq!(refuses.asked().len(), 1);
}

#[tokio::test]
async fn a_read_goes_on_at_another_node_if_one_dies_or_hangs() {
    let other = Scripted::new(&[VALUE]);
    for first in [Dies, Hangs] {
        let first = Scripted::new(&[first]);
        let carts = carts([first.at, other.at]);
        assert_eq!(carts.get("k").await.unwrap().unwrap().value, [1, 2]);
        let begun = Instant::now();
        assert!(carts.get("k").await.unwrap().is_some());
        assert!(begun.elapsed() < Duration::from_secs(1), "the node that did not answer is not asked first again");
        assert_eq!(first.asked().len(), 1);
    }
}

#[tokio::test]
async fn an_update_is_done_anew_when_somebody_wrote_in_between_and_not_for_ever() {
    let at_7 = Answers(200, "etag: \"7\"\r\n", "5");
    let unmet = Answers(412, "etag: \"8\"\r\n", "{}");
    let one = Scripted::new(&[at_7.clone(), unmet.clone(), Answers(200, "etag: \"8\"\r\n", "6"), STORED]);
    let written = bank([one.at]).update("k", |n| *n += 1).await.unwrap();
    assert_eq!(written, (7, ()));
    let always: Vec<Does> = (0..40).flat_map(|_| [at_7.clone(), unmet.clone()]).collect();
    let busy = Scripted::new(&always);
    assert!(matches!(bank([busy.at]).update("k", |n| *n += 1).await, Err(LinearError::Refused(_))));
    assert_eq!(busy.asked().len(), 2 * 16);
}

#[tokio::test]
async fn what_merging_needs_goes_back_with_the_value() {
    #[derive(serde::Serialize, serde::Deserialize, Default, Debug)]
    struct Cart {
        bread: u32,
    }
    let read = Answers(200, "etag: \"7\"\r\n", r#"{"bread":1,"_coppice":"v1.abc"}"#);
    let one = Scripted::new(&[read, STORED]);
    let carts: Sessions<Cart> = Sessions::new(node([one.at]), "carts", "secret");
    let held = carts.get("k").await.unwrap().unwrap();
    assert_eq!(held.value.bread, 1);
    assert_eq!(carts.put_back("k", &held).await.unwrap().to_string(), "8");
    assert_eq!(one.asked()[1], r#"PUT /v1/ns/carts/keys/k {"_coppice":"v1.abc","bread":1}"#);
}

#[tokio::test]
async fn a_lease_has_a_token_and_an_end() {
    let one = Scripted::new(&[
        Answers(200, "", r#"{"result":41}"#),
        Answers(200, "", r#"{"result":1}"#),
        Answers(200, "", r#"{"result":0}"#),
        Answers(200, "", r#"{"result":null}"#),
    ]);
    let bank = bank([one.at]);
    let lease = bank.claim("cron", "me", Duration::from_secs(5)).await.unwrap().unwrap();
    assert!(lease.token == 41 && lease.until <= Instant::now() + Duration::from_secs(5));
    assert!(bank.renew(&lease, Duration::from_secs(9)).await.unwrap().unwrap().until > lease.until);
    assert!(!bank.release(&lease).await.unwrap(), "it was over");
    assert_eq!(bank.claim("cron", "me", Duration::from_secs(5)).await, Ok(None), "somebody else has it");
}

fn group(at: SocketAddr) -> Group {
    let api = format!("http://{at}");
    let vars = [
        ("PORT", "80"),
        ("COPPICE_NODE_API", &*api),
        ("COPPICE_SERVICE", "shop"),
        ("COPPICE_MEMBER", "n1.2.3"),
        ("COPPICE_TOKEN", "secret"),
    ];
    let given = Given::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap();
    Service::of(given).unwrap().group().unwrap()
}

#[tokio::test]
async fn a_barrier_is_asked_again_until_it_is_passed_or_the_time_is_over() {
    let waits = Answers(202, "", r#"{"passed":false,"reached":1,"missing":["n2.1.1"]}"#);
    let not_known = Answers(503, "", r#"{"error":"not known yet","retry_after_ms":10}"#);
    let passed = Answers(200, "", r#"{"passed":true,"reached":2,"missing":[]}"#);
    let one = Scripted::new(&[not_known, waits.clone(), passed]);
    let met = group(one.at).barrier("a b", 4, 2, Duration::from_secs(5)).await.unwrap();
    assert!(met.passed && met.reached == 2);
    let asked = one.asked();
    assert!(
        asked.len() == 3 && asked[2].starts_with("POST /v1/services/shop/barrier/a%20b?phase=4&at_least=2&wait_ms=")
    );
    let late = group(Scripted::new(&[waits]).at).barrier("x", 1, 0, Duration::ZERO).await.unwrap();
    assert_eq!((late.passed, late.missing), (false, vec!["n2.1.1".to_owned()]));
    let no = Answers(401, "", r#"{"error":"the token"}"#);
    assert!(group(Scripted::new(&[no]).at).barrier("x", 1, 0, Duration::from_secs(5)).await.is_err());
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_anew() {
    let kind = "content-type: text/event-stream\r\n";
    let first = Answers(
        200,
        kind,
        "event: listening\nid: n1.2/4\ndata: {}\n\nevent: message\nid: n1.2/5\ndata: {\"from\":\"a\",\"text\":\"one\"}\n\n",
    );
    let second = Answers(
        200,
        kind,
        ": quiet\n\nevent: missed\ndata: {}\n\nevent: message\nid: n2.1/9\ndata: {\"from\":\"a\",\"base64\":\"//8=\"}\n\n",
    );
    let one = Scripted::new(&[first, Dies, second]);
    let mut messages = group(one.at).messages();
    assert_eq!(messages.next().await, Heard::Message { from: "a".into(), body: "one".into() });
    assert_eq!(messages.next().await, Heard::Missed);
    assert_eq!(messages.next().await, Heard::Message { from: "a".into(), body: vec![255, 255].into() });

    let now = Answers(
        200,
        kind,
        "event: members\ndata: {\"leader\":null,\"members\":[]}\n\nevent: new\ndata: 1\n\nevent: birth\ndata: {\"life\":\"n1.1.1\",\"clone\":\"shop/0\",\"node\":\"n1\",\"state\":\"waking\",\"pid\":7}\n\n",
    );
    let mut changes = group(Scripted::new(&[now]).at).watch();
    assert_eq!(changes.next().await, Change::Now(Members::default()));
    let Change::Birth(member) = changes.next().await else { panic!() };
    assert_eq!((member.life.as_str(), member.state), ("n1.1.1", State::Other), "what only a newer node knows");
    assert_eq!(changes.next().await, Change::Now(Members::default()), "after the cut: all of it");
}
