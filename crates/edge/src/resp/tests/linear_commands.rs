//! Commands of class `linear`, run by the functions that shards run: what is answered is what Redis answers.

use super::*;

#[test]
fn clients_are_told_which_arguments_are_keys() {
    let a_b = "*2\r\n$1\r\na\r\n$1\r\nb\r\n";
    let a = "*1\r\n$1\r\na\r\n";
    check_linear(&[
        ("COMMAND GETKEYS SINTERCARD 2 a b LIMIT 1", a_b),
        ("COMMAND GETKEYS LMPOP 2 a b LEFT", a_b),
        ("COMMAND GETKEYS BLMPOP 0 2 a b LEFT COUNT 3", a_b),
        ("COMMAND GETKEYS BLPOP a b 0", a_b),
        ("COMMAND GETKEYS BITOP AND a b", a_b),
        ("COMMAND GETKEYS FCALL number.add 1 a 5", a),
        ("COMMAND GETKEYS FCALL_RO get 1 a", a),
        ("COMMAND GETKEYS MEMORY USAGE a SAMPLES 0", a),
        ("COMMAND GETKEYS OBJECT ENCODING a", a),
        ("COMMAND GETKEYS WATCH a b", a_b),
        ("COMMAND GETKEYS ONCE id SET a 1", a),
        ("COMMAND GETKEYS ONCE id LMPOP 2 a b LEFT", a_b),
        ("COMMAND GETKEYS ONCE id ONCE id SET a 1", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS ONCE id EXEC", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS SINTERCARD 3 a b", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS SINTERCARD 18446744073709551615 a", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS SINTERCARD -1 a", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS SINTERCARD 1", "-ERR Invalid number of arguments specified for command\r\n"),
        ("COMMAND GETKEYS PING", "-ERR The command has no key arguments\r\n"),
        ("COMMAND GETKEYS NOSUCH a", "-ERR Invalid command specified\r\n"),
        (
            "COMMAND INFO lmpop bitop",
            "*2\r\n*10\r\n$5\r\nlmpop\r\n:-4\r\n*3\r\n+write\r\n+denyoom\r\n+movablekeys\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n\
             *10\r\n$5\r\nbitop\r\n:-4\r\n*2\r\n+write\r\n+denyoom\r\n:2\r\n:-1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
        ),
    ]);
}

/// Commands whose keys are counted wait for their keys alone; one that may be about others, for all.
#[test]
fn commands_wait_for_those_on_their_own_keys() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        sign_in_linear(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["LMPOP 2 a b LEFT", "GET c", "FCALL rename 1 c d", "GET e"]).await;
        until(|| toy.asked() == ["list.pop-first a", "get c"]).await;
        pause().await;
        assert_eq!(toy.asked().len(), 2);
        toy.give("list.pop-first a", linear::Reply::Nil);
        toy.give("get c", linear::Reply::Nil);
        until(|| toy.asked() == ["rename c"]).await;
        pause().await;
        assert_eq!(toy.asked().len(), 1);
        toy.give("rename c", linear::Reply::Int(1));
        until(|| toy.asked() == ["get e"]).await;
        toy.give("get e", linear::Reply::Nil);
        expect(&mut stream, "*-1\r\n$-1\r\n:1\r\n$-1\r\n", "in order").await;
        send(&mut stream, &["BITOP OR to a b", "STRLEN b"]).await;
        until(|| toy.asked() == ["text.bit-op to"]).await;
        pause().await;
        assert_eq!(toy.asked().len(), 1);
        toy.give("text.bit-op to", linear::Reply::Int(1));
        until(|| toy.asked() == ["text.length b"]).await;
    });
}

#[test]
fn every_write_on_its_keys_may_have_an_id() {
    check_linear(&[
        ("RPUSH l a", ":1\r\n"),
        ("ONCE 01980000-0000-7000-8000-000000000001 LMPOP 2 k l LEFT", "*2\r\n$1\r\nl\r\n*1\r\n$1\r\na\r\n"),
        ("ONCE 01980000-0000-7000-8000-000000000002 BITOP OR to a b", ":0\r\n"),
        ("ONCE 01980000-0000-7000-8000-000000000003 FLUSHDB", "-ERR ONCE does not go with 'FLUSHDB'\r\n"),
    ]);
}
