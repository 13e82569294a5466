// A member of Hazelcast with a ReplicatedMap behind a door of the Redis protocol: PING, GET and SET, one thread for each client. A peer of
// `lab run soft --part local` (lab/src/hazelcast.rs). Arguments: the door's port, the member's port, ports of all members.
import com.hazelcast.config.Config;
import com.hazelcast.config.InMemoryFormat;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.replicatedmap.ReplicatedMap;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

public class HazelcastDoor {
    public static void main(String[] args) throws IOException {
        Config config = new Config();
        config.setClusterName("lab-" + args[2]).setProperty("hazelcast.phone.home.enabled", "false");
        config.getNetworkConfig().setPort(Integer.parseInt(args[1])).setPortAutoIncrement(false);
        config.getNetworkConfig().getInterfaces().setEnabled(true).addInterface("127.0.0.1");
        config.getNetworkConfig().getJoin().getAutoDetectionConfig().setEnabled(false);
        config.getNetworkConfig().getJoin().getMulticastConfig().setEnabled(false);
        config.getNetworkConfig().getJoin().getTcpIpConfig().setEnabled(true);
        for (int nth = 2; nth < args.length; nth++) {
            config.getNetworkConfig().getJoin().getTcpIpConfig().addMember("127.0.0.1:" + args[nth]);
        }
        config.getReplicatedMapConfig("lab").setInMemoryFormat(InMemoryFormat.OBJECT);
        var instance = Hazelcast.newHazelcastInstance(config);
        ReplicatedMap<String, byte[]> map = instance.getReplicatedMap("lab");
        int members = args.length - 2;
        try (ServerSocket door = new ServerSocket(Integer.parseInt(args[0]), 512, InetAddress.getByName("127.0.0.1"))) {
            while (true) {
                Socket socket = door.accept();
                socket.setTcpNoDelay(true);
                Thread client = new Thread(() -> {
                    try (socket) {
                        serve(socket, map, () -> instance.getCluster().getMembers().size() == members);
                    } catch (IOException gone) {
                        // It has gone.
                    }
                });
                client.setDaemon(true);
                client.start();
            }
        }
    }

    interface Whole {
        boolean is();
    }

    static void serve(Socket socket, ReplicatedMap<String, byte[]> map, Whole whole) throws IOException {
        InputStream in = new BufferedInputStream(socket.getInputStream());
        OutputStream out = new BufferedOutputStream(socket.getOutputStream());
        while (true) {
            int count = number(in, '*');
            byte[][] words = new byte[count][];
            for (int nth = 0; nth < count; nth++) {
                words[nth] = in.readNBytes(number(in, '$'));
                in.readNBytes(2);
            }
            switch (new String(words[0], StandardCharsets.US_ASCII)) {
                case "PING" -> out.write((whole.is() ? "+PONG\r\n" : "-LOADING it is not whole\r\n").getBytes());
                case "SET" -> {
                    map.put(new String(words[1], StandardCharsets.UTF_8), words[2]);
                    out.write("+OK\r\n".getBytes());
                }
                case "GET" -> {
                    byte[] value = map.get(new String(words[1], StandardCharsets.UTF_8));
                    out.write((value == null ? "$-1\r\n" : "$" + value.length + "\r\n").getBytes());
                    if (value != null) {
                        out.write(value);
                        out.write("\r\n".getBytes());
                    }
                }
                default -> out.write("-ERR no such command\r\n".getBytes());
            }
            if (in.available() == 0) {
                out.flush();
            }
        }
    }

    // The number of a line that begins so.
    static int number(InputStream in, char kind) throws IOException {
        int byt = in.read();
        if (byt != kind) {
            throw new IOException("no command");
        }
        int number = 0;
        for (byt = in.read(); byt != '\r'; byt = in.read()) {
            if (byt < '0' || byt > '9') {
                throw new IOException("no number");
            }
            number = number * 10 + byt - '0';
        }
        in.read();
        return number;
    }
}
