//! Queues of jobs by the SDK: what is asked, what becomes of the answers, and a worker from its first job to its end.

use std::cell::Cell;
use std::time::Duration;

use sdk::{Depth, JobFailed, Linear, Node, Put, Queue, Times, Works};

use crate::scripted::Does::{Answers, Dies};
use crate::scripted::Scripted;

fn mails(node: &Scripted) -> Queue<String> {
    Linear::<()>::new(Node::at([node.at]).unwrap(), "jobs", "secret").queue("mails")
}

#[tokio::test]
async fn what_a_queue_is_asked_and_says() {
    let node = Scripted::new(&[
        Answers(200, "", r#"{"id": 7, "new": true}"#),
        Answers(200, "", r#"{"id": 7, "new": false}"#),
        Answers(
            200,
            "",
            r#"{"jobs": [{"ticket": "7.2", "id": 7, "payload": "\"ann\"", "try": 2, "age_ms": 1500},
                         {"ticket": "8.1", "id": 8, "payload": "{}", "try": 1, "age_ms": 0}]}"#,
        ),
        Answers(200, "", r#"{"state": "dead"}"#),
        Answers(200, "", r#"{"held": false}"#),
        // The answer is lost: it is asked again by the same id.
        Dies,
        Answers(200, "", r#"{"done": 1}"#),
        Answers(200, "", r#"{"state": null}"#),
        Answers(404, "", r#"{"error": "there is no queue"}"#),
        Answers(200, "", r#"{"waiting": 1, "later": 2, "held": 3, "dead": 4, "oldest_ms": 5000, "put": 9}"#),
        Answers(200, "", r#"{"next_ms": 1}"#),
        Answers(507, "", r#"{"error": "the queue is full"}"#),
    ]);
    let mails = mails(&node);
    assert_eq!(mails.put(&"ann".to_owned()).await, Ok(7));
    let put = Put {
        delay: Duration::from_micros(10),
        priority: Some(9),
        tries: Some(2),
        key: Some("k".into()),
        keep: Some(Duration::from_secs(60)),
    };
    assert_eq!(mails.put_with(&"ann".to_owned(), &put).await, Ok(7));
    let taken = mails.take(2, Duration::from_secs(9), Duration::from_secs(99)).await.unwrap();
    assert_eq!(taken.len(), 1, "what is no text of this type is dead at once");
    assert_eq!((&*taken[0].ticket, &*taken[0].job, taken[0].nth), ("7.2", "ann", 2));
    assert_eq!(mails.renew("7.2", Duration::from_secs(9)).await, Ok(false));
    assert_eq!(mails.done("7.2").await, Ok(true));
    assert_eq!(mails.fail("7.2", Some(Duration::ZERO), "no").await, Ok(JobFailed::Gone));
    assert_eq!(mails.depth().await, Ok(Depth::default()));
    let depth = Depth { waiting: 1, later: 2, held: 3, dead: 4, oldest: Duration::from_secs(5) };
    assert_eq!(mails.depth().await, Ok(depth));
    assert_eq!(mails.repeat("daily", &Times::Cron("@daily".into()), &"all".to_owned()).await, Ok(()));
    let full = mails.put(&"ann".to_owned()).await.unwrap_err();
    assert!(full.to_string().contains("the queue is full"), "{full}");
    let asked = node.asked();
    for (nth, wanted) in [
        (0, &["POST /v1/ns/jobs/queues/mails/jobs", r#"{"payload":"\"ann\""}"#][..]),
        (1, &[r#""delay_ms":1"#, r#""priority":9"#, r#""tries":2"#, r#""key":"k""#, r#""keep_ms":60000"#]),
        (2, &["/take", r#""count":2"#, r#""hold_ms":9000"#, r#""wait_ms":20000"#]),
        (3, &["/fail", r#""ticket":"8.1""#, r#""dead":true"#]),
        (7, &["/fail", r#""delay_ms":0"#, r#""why":"no""#]),
        (10, &["PUT /v1/ns/jobs/queues/mails/repeats/daily", r#""cron":"@daily""#]),
    ] {
        wanted.iter().for_each(|part| assert!(asked[nth].contains(part), "{nth}: {part} is not in {}", asked[nth]));
    }
    assert_eq!(asked[5], asked[6]);
}

#[tokio::test]
async fn a_worker_says_how_each_job_ended_and_finishes_what_it_began() {
    let job = |id: u32| format!(r#"{{"ticket": "{id}.1", "id": {id}, "payload": "\"{id}\"", "try": 1, "age_ms": 0}}"#);
    let jobs = format!(r#"{{"jobs": [{}]}}"#, job(1));
    let more = format!(r#"{{"jobs": [{}]}}"#, job(2));
    let node = Scripted::new(&[
        Answers(200, "", String::leak(jobs)),
        Answers(200, "", r#"{"state": "again"}"#),
        Answers(503, "", r#"{"error": "busy", "retry_after_ms": 1}"#),
        Answers(200, "", String::leak(more)),
        Answers(200, "", r#"{"done": 1}"#),
    ]);
    let (mails, count) = (mails(&node), Cell::new(0));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stop = Cell::new(Some(stop));
    let until = async { drop(stopped.await) };
    mails
        .work(Works::default(), until, async |job| {
            count.set(count.get() + 1);
            match &*job.job {
                "1" => Err("no such address"),
                _ => {
                    drop(stop.take());
                    Ok(())
                }
            }
        })
        .await;
    let asked = node.asked();
    let ends: Vec<&String> = asked.iter().filter(|asked| !asked.contains("/take")).collect();
    assert_eq!((count.get(), ends.len()), (2, 2), "{asked:?}");
    assert!(ends[0].contains("/fail") && ends[0].contains("no such address"), "{asked:?}");
    assert!(ends[1].contains("/done") && ends[1].contains("2.1"), "{asked:?}");
}
