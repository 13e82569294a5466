"""WebSockets with nothing but the standard library: says each short message back, and answers a close frame. Asked to end,
it takes no new ones and ends when the last one has.
"""
import asyncio
import base64
import hashlib
import os
import signal

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


open_ones = set()


async def serve(reader, writer):
    open_ones.add(writer)
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        if fields.get(b"upgrade") != b"websocket":
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nok\n")
            return
        # Fields are in lower case now, but for this one that must not be.
        key = next(line.split(b": ", 1)[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
        writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while True:
            opcode, length = await reader.readexactly(2)
            assert 0x80 <= length < 0xFE, "masked, and short"
            mask = await reader.readexactly(4)
            content = bytes(b ^ mask[i % 4] for i, b in enumerate(await reader.readexactly(length & 0x7F)))
            writer.write(bytes([opcode, len(content)]) + content)
            await writer.drain()
            if opcode == 0x88:
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
        open_ones.discard(writer)


async def main():
    server = await asyncio.start_server(serve, os.environ["HOST"], int(os.environ["PORT"]), backlog=1024)
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    await asked.wait()
    server.close()
    while open_ones:
        await asyncio.sleep(0.01)


asyncio.run(main())
