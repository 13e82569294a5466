import com.sun.net.httpserver.*;
import io.lettuce.core.RedisURI;
import java.io.IOException;
import java.net.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import org.springframework.data.redis.connection.lettuce.*;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.serializer.*;
import org.springframework.session.Session;
import org.springframework.session.SessionRepository;
import org.springframework.session.data.redis.RedisSessionRepository;

/**
 * What a visitor said, by Spring Session's RedisSessionRepository (its default) as it is. The web server is the JDK's, so
 * that the example stays small; in Spring Boot the filter does what serve() does here. Coppice gives HOST, PORT and
 * COPPICE_SESSIONS_URL; the URL of a Redis works as well.
 */
public class Sessions {
    public static void main(String[] args) throws IOException {
        var env = System.getenv();
        var factory = new LettuceConnectionFactory(
            LettuceConnectionFactory.createRedisConfiguration(RedisURI.create(env.get("COPPICE_SESSIONS_URL"))));
        factory.afterPropertiesSet();
        factory.start();
        var redis = new RedisTemplate<String, Object>();
        redis.setConnectionFactory(factory);
        redis.setKeySerializer(RedisSerializer.string());
        redis.setHashKeySerializer(RedisSerializer.string());
        redis.afterPropertiesSet();
        var sessions = new RedisSessionRepository(redis);
        sessions.setDefaultMaxInactiveInterval(Duration.ofHours(1));
        var at = new InetSocketAddress(env.getOrDefault("HOST", "127.0.0.1"), Integer.parseInt(env.getOrDefault("PORT", "8080")));
        var server = HttpServer.create(at, 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            try {
                serve(sessions, exchange);
            } catch (Exception error) {
                error.printStackTrace();
                answer(exchange, 500, String.valueOf(error));
            }
        });
        server.start();
    }

    static <S extends Session> void serve(SessionRepository<S> sessions, HttpExchange exchange) throws Exception {
        var words = exchange.getRequestURI().getPath().split("/");
        var act = words.length > 1 ? words[1] : "";
        if (act.equals("health")) { answer(exchange, 200, "ok\n"); return; }
        var cookie = Optional.ofNullable(exchange.getRequestHeaders().getFirst("Cookie")).orElse("");
        var session = cookie.startsWith("SESSION=") ? sessions.findById(cookie.substring(8)) : null;
        if (act.equals("logout") && session != null) {
            sessions.deleteById(session.getId());
            session = null;
        }
        if (session == null) session = sessions.createSession();
        var query = Optional.ofNullable(exchange.getRequestURI().getQuery()).orElse("wait=0");
        Thread.sleep(Long.parseLong(query.substring("wait=".length()))); // Pages take their time.
        if (act.equals("set")) session.setAttribute(words[2], words[3]);
        if (act.equals("drop")) session.removeAttribute(words[2]);
        if (act.equals("login")) session.changeSessionId();
        sessions.save(session);
        exchange.getResponseHeaders().add("Set-Cookie", "SESSION=" + session.getId() + "; HttpOnly; SameSite=Lax");
        var shown = session;
        var fields = shown.getAttributeNames().stream().sorted().map(name -> '"' + name + "\":\"" + shown.getAttribute(name) + '"');
        answer(exchange, 200, fields.collect(Collectors.joining(",", "{", "}")));
    }

    static void answer(HttpExchange exchange, int status, String text) throws IOException {
        exchange.sendResponseHeaders(status, text.getBytes().length);
        try (var out = exchange.getResponseBody()) { out.write(text.getBytes()); }
    }
}
