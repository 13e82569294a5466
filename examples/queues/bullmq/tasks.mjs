// BullMQ, as it comes: a queue, and a worker that does two jobs at a time.
import { appendFileSync } from 'node:fs';
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const connection = new Redis(process.env.QUEUE_URL ?? 'redis://127.0.0.1:6379', { maxRetriesPerRequest: null });
const queue = new Queue('jobs', { connection });
queue.on('error', () => {});

function did(number) {
  if (process.env.DONE) appendFileSync(process.env.DONE, `${number}\n`);
  else console.log('job', number);
}

function work() {
  // What a worker had that was silent for so long, milliseconds, is given to others.
  const options = { connection, concurrency: 2, lockDuration: 5000, stalledInterval: 3000, maxStalledCount: 5 };
  new Worker('jobs', async job => did(job.data.number), options).on('error', error => console.error(error.message));
}

async function put(count) {
  const again = [];
  for (let number = 1; number <= count; number++) {
    for (;;) {
      try {
        await queue.add('job', { number }, { jobId: `job-${number}`, attempts: 3 });
        break;
      } catch (error) {
        console.error(number, error.message);
        again.push(number);
        await new Promise(done => setTimeout(done, 100));
      }
    }
  }
  console.log(JSON.stringify({ again }));
}

async function left() {
  const jobs = await queue.getJobs(['waiting', 'active', 'delayed', 'failed', 'prioritized', 'paused']);
  console.log(JSON.stringify({ left: jobs.map(job => job.data.number).sort((a, b) => a - b), waiting: await queue.getWaitingCount() }));
}

const [what, count] = process.argv.slice(2);
if (what === 'work') work();
else {
  if (what === 'put') await put(Number(count));
  else await left();
  process.exit(0);
}
