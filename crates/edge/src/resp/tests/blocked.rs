//! Commands that wait for an item: what begins behind them, and what becomes of an item whose client has gone.

use linear::Reply as Got;

use super::*;

const POP: &str = "list.pop-left q";
const BACK: &str = "list.push-left q";
const CHANGES: &str = "changes q";
const POP_R: &str = "list.pop-left r";
const CHANGES_R: &str = "changes r";

/// A client of class `linear`, whose questions are kept.
pub async fn begin(toy: &Toy, stream: &mut TcpStream, commands: &[&str]) {
    toy.set_linear();
    toy.holds.set(true);
    sign_in_linear(stream).await;
    send(stream, commands).await;
}

/// Answers who asks this about the list next.
pub async fn answer(toy: &Toy, question: &str, reply: Got) {
    until(|| toy.asked().iter().any(|asked| asked == question)).await;
    toy.give(question, reply);
}

/// From now on it waits for a list that has nothing: it looks, asks where changes begin, and looks again.
async fn wait_in(toy: &Toy) {
    answer(toy, POP, Got::Nil).await;
    answer(toy, CHANGES, upto(5)).await;
    answer(toy, POP, Got::Nil).await;
    until(|| toy.asked() == [CHANGES]).await;
}

/// A change, up to this version.
pub fn upto(version: i64) -> Got {
    Got::List(vec![Got::Int(version), Got::List(vec![Got::Nil])])
}

/// No change up to this version.
fn quiet(version: i64) -> Got {
    Got::List(vec![Got::Int(version), Got::List(Vec::new())])
}

fn item() -> Got {
    Got::Bytes("item".into())
}

#[test]
fn nothing_begins_behind_who_waits() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["BLPOP q 0", "RPUSH other x", "NOSUCH", "QUIT"]).await;
        wait_in(&toy).await;
        pause().await;
        assert_eq!(toy.asked(), [CHANGES]);
        answer(&toy, CHANGES, upto(6)).await;
        answer(&toy, POP, item()).await;
        expect(&mut stream, "*2\r\n$1\r\nq\r\n$4\r\nitem\r\n", "the item").await;
        answer(&toy, "list.push-right other", Got::Int(1)).await;
        let rest = expect_end(&mut stream).await;
        assert!(rest.starts_with(":1\r\n-ERR 'NOSUCH'") && rest.ends_with("\r\n+OK\r\n"), "{rest}");
    });
}

#[test]
fn a_member_is_put_back_with_its_score_whose_client_has_gone() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["BZPOPMIN q 0"]).await;
        answer(&toy, "sorted.pop q", Got::Nil).await;
        answer(&toy, CHANGES, upto(5)).await;
        answer(&toy, "sorted.pop q", Got::Nil).await;
        answer(&toy, CHANGES, upto(6)).await;
        until(|| toy.asked() == ["sorted.pop q"]).await;
        drop(stream);
        pause().await;
        answer(&toy, "sorted.pop q", Got::List(vec![Got::Bytes("m".into()), Got::Bytes("1.5".into())])).await;
        answer(&toy, "sorted.add q", Got::List(vec![Got::Int(1), Got::Int(0)])).await;
        until(|| toy.meter.resp.connections() == 0).await;
    });
}

fn job() -> Got {
    let (ticket, payload) = (Got::Bytes("7.1".into()), Got::Bytes("mail".into()));
    Got::List(vec![Got::List(vec![ticket, payload, Got::Int(1), Got::Int(12)])])
}

/// `FCALL queue.take` waits with its third number, and not without.
#[test]
fn a_job_is_waited_for_and_goes_back_if_its_client_has_gone() {
    const TAKE: &str = "queue.take q";
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["FCALL queue.take 1 q 1 1000", "FCALL queue.take 1 q 1 1000 60000"]).await;
        answer(&toy, TAKE, Got::Nil).await;
        expect(&mut stream, "$-1\r\n", "there is none").await;
        answer(&toy, TAKE, Got::Nil).await;
        answer(&toy, CHANGES, upto(5)).await;
        answer(&toy, TAKE, Got::Nil).await;
        answer(&toy, CHANGES, upto(6)).await;
        answer(&toy, TAKE, job()).await;
        expect(&mut stream, "*1\r\n*4\r\n$3\r\n7.1\r\n$4\r\nmail\r\n:1\r\n:12\r\n", "the job").await;
        send(&mut stream, &["FCALL queue.take 1 q 1 1000 60000"]).await;
        until(|| toy.asked() == [TAKE]).await;
        drop(stream);
        pause().await;
        answer(&toy, TAKE, job()).await;
        answer(&toy, "queue.back q", Got::Int(1)).await;
        until(|| toy.meter.resp.connections() == 0).await;
    });
}

#[test]
fn an_item_is_put_back_whose_client_has_gone_whatever_it_had_sent_behind() {
    let much = line("PING").repeat(limits::READ_BYTES_MAX / 4);
    for behind in [line("QUIT"), b"*1\r\n!".to_vec(), much] {
        with_door(|toy, mut stream| async move {
            begin(&toy, &mut stream, &["BLPOP q 0"]).await;
            stream.write_all(&behind).await.unwrap();
            wait_in(&toy).await;
            answer(&toy, CHANGES, upto(6)).await;
            until(|| toy.asked() == [POP]).await;
            drop(stream);
            pause().await;
            answer(&toy, POP, item()).await;
            answer(&toy, BACK, Got::Int(1)).await;
            until(|| toy.meter.resp.connections() == 0).await;
        });
    }
}

#[test]
fn nobody_waits_any_more_for_a_client_that_went_meanwhile() {
    for behind in ["PING", "QUIT"] {
        with_door(|toy, mut stream| async move {
            begin(&toy, &mut stream, &["BLPOP q 0", behind]).await;
            wait_in(&toy).await;
            drop(stream);
            until(|| toy.meter.resp.connections() == 0).await;
            pause().await;
            // A question cannot be taken back.
            answer(&toy, CHANGES, upto(6)).await;
            pause().await;
            assert_eq!(toy.asked(), [""; 0]);
        });
    }
}

#[test]
fn one_question_for_each_key_however_many_wait_and_come_again() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["BLPOP r q 0"]).await;
        for round in 0..10 {
            answer(&toy, POP_R, Got::Nil).await;
            answer(&toy, POP, Got::Nil).await;
            if round == 0 {
                // Later it is known from the question that is there.
                answer(&toy, CHANGES_R, upto(5)).await;
            }
            answer(&toy, CHANGES, upto(5 + round)).await;
            if round == 0 {
                answer(&toy, POP_R, Got::Nil).await;
            }
            answer(&toy, POP, Got::Nil).await;
            until(|| toy.asked() == [CHANGES_R, CHANGES]).await;
            answer(&toy, CHANGES, upto(6 + round)).await;
            answer(&toy, POP, item()).await;
            expect(&mut stream, "*2\r\n$1\r\nq\r\n$4\r\nitem\r\n", "the item").await;
            assert_eq!(toy.asked(), [CHANGES_R], "it stays for who comes next");
            send(&mut stream, &["BLPOP r q 0"]).await;
        }
        // An answer that came while nobody waited is none of what comes later.
        answer(&toy, POP_R, item()).await;
        expect(&mut stream, "*2\r\n$1\r\nr\r\n$4\r\nitem\r\n", "of the other one").await;
        toy.give(CHANGES_R, upto(7));
        send(&mut stream, &["BLPOP r 0"]).await;
        answer(&toy, POP_R, Got::Nil).await;
        answer(&toy, CHANGES_R, upto(8)).await;
        answer(&toy, POP_R, Got::Nil).await;
        until(|| toy.asked() == [CHANGES_R]).await;
    });
}

/// Each look is a write into the log.
#[test]
fn who_waits_looks_only_where_something_has_come() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["BLPOP r q 0"]).await;
        answer(&toy, POP_R, Got::Nil).await;
        answer(&toy, POP, Got::Nil).await;
        answer(&toy, CHANGES_R, quiet(5)).await;
        answer(&toy, CHANGES, quiet(5)).await;
        answer(&toy, POP_R, Got::Nil).await;
        answer(&toy, POP, Got::Nil).await;
        for version in 6..16 {
            until(|| toy.asked() == [CHANGES_R, CHANGES]).await;
            // Both were asked at once, and end so.
            toy.give(CHANGES_R, quiet(version));
            toy.give(CHANGES, quiet(version));
            pause().await;
        }
        until(|| toy.asked() == [CHANGES_R, CHANGES]).await;
        toy.give(CHANGES_R, upto(17));
        toy.give(CHANGES, upto(17));
        answer(&toy, POP_R, Got::Nil).await;
        answer(&toy, POP, item()).await;
        expect(&mut stream, "*2\r\n$1\r\nq\r\n$4\r\nitem\r\n", "the item").await;
        assert_eq!(toy.asked(), [""; 0]);
    });
}

/// Else its end is noticed when an item comes, and its place is taken until then.
#[test]
fn who_waits_and_goes_is_noticed_however_much_it_was_answered_before() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &[]).await;
        // As of several shards.
        let size = limits::IN_FLIGHT_BYTES_MAX;
        send(&mut stream, &["GET a", "BLPOP q 0"]).await;
        answer(&toy, "get a", Got::Bytes(vec![b'v'; size].into())).await;
        let mut got = vec![0; size + "$33554432\r\n\r\n".len()];
        stream.read_exact(&mut got).await.unwrap();
        wait_in(&toy).await;
        drop(stream);
        until(|| toy.meter.resp.connections() == 0).await;
    });
}

#[test]
fn nothing_is_taken_for_a_client_that_went_before_its_turn() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["RPUSH q x", "BLPOP q 0"]).await;
        until(|| toy.asked() == ["list.push-right q"]).await;
        drop(stream);
        pause().await;
        answer(&toy, "list.push-right q", Got::Int(1)).await;
        until(|| toy.meter.resp.connections() == 0).await;
        pause().await;
        assert_eq!(toy.asked(), [""; 0]);
    });
}

#[test]
fn an_item_that_waits_for_earlier_answers_is_put_back_too_and_holds_up_nobody() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["GET a", "BLPOP q 0"]).await;
        until(|| toy.asked() == ["get a", POP]).await;
        let mut other = another(&stream).await;
        send(&mut other, &["BLPOP q 0"]).await;
        answer(&toy, CHANGES, upto(5)).await;
        assert_eq!(toy.asked(), ["get a", POP]);
        answer(&toy, POP, item()).await;
        // The next one's turn has come.
        answer(&toy, POP, Got::Nil).await;
        until(|| toy.asked() == ["get a", CHANGES]).await;
        drop(stream);
        answer(&toy, BACK, Got::Int(1)).await;
        answer(&toy, CHANGES, upto(6)).await;
        answer(&toy, POP, item()).await;
        expect(&mut other, "*2\r\n$1\r\nq\r\n$4\r\nitem\r\n", "it is there for the next").await;
    });
}

#[test]
fn who_waits_at_a_closing_door_is_told_and_the_rest_is_answered() {
    with_door_of(Toy::default(), |toy, mut stream, close| async move {
        begin(&toy, &mut stream, &["GET a", "BLPOP q 0", "BLPOP q 0", "PING"]).await;
        until(|| toy.asked() == ["get a", POP]).await;
        answer(&toy, POP, Got::Nil).await;
        close.send(()).unwrap();
        pause().await;
        answer(&toy, "get a", Got::Nil).await;
        let unblocked = "-UNBLOCKED this node is about to end: nothing was taken, ask another one\r\n";
        assert_eq!(expect_end(&mut stream).await, format!("$-1\r\n{unblocked}{unblocked}+PONG\r\n"));
    });
}
