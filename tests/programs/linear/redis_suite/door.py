"""Stands between Redis's own test suite and a namespace: the suite knows no user names and sets Redis up as it goes. Each
connection is authenticated here, and CONFIG SET and CONFIG RESETSTAT, with which the suite's harness begins and ends,
are answered with OK. All other bytes pass as they are.

    python3 door.py HOST:PORT NAMESPACE TOKEN      prints the port that it listens on
"""

import asyncio
import sys

HARNESS = {(b"CONFIG", b"SET"), (b"CONFIG", b"RESETSTAT")}
# A command that answers OK and does nothing.
NOTHING = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"


def command(words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


async def asked(client, node):
    """Commands, one by one; anything else as it comes."""
    while line := await client.readline():
        if not line.startswith(b"*") or not line[1:].strip().isdigit():
            node.write(line)
            await node.drain()
            continue
        raw, words = [line], []
        for _ in range(int(line[1:])):
            head = await client.readline()
            raw.append(head)
            if not head.startswith(b"$") or not head[1:].strip().isdigit():
                words = []
                break
            word = await client.readexactly(int(head[1:]) + 2)
            raw.append(word)
            words.append(word[:-2])
        is_harness = tuple(word.upper() for word in words[:2]) in HARNESS
        node.write(NOTHING if is_harness else b"".join(raw))
        await node.drain()


async def answered(node, client):
    while some := await node.read(65536):
        client.write(some)
        await client.drain()


async def serve(reader, writer):
    host, port = sys.argv[1].rsplit(":", 1)
    try:
        node_reader, node_writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
    except OSError:
        writer.close()
        return
    node_writer.write(command([b"AUTH", sys.argv[2].encode(), sys.argv[3].encode()]))
    said = await node_reader.readline()
    if said != b"+OK\r\n":
        sys.exit(f"the node says {said}")
    ways = {asyncio.create_task(asked(reader, node_writer)), asyncio.create_task(answered(node_reader, writer))}
    done, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    for task in done:
        task.exception()
    for end in (writer, node_writer):
        end.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
