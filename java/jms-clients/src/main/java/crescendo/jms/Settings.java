package crescendo.jms;

import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Session;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** The settings of one connection, as the parent sent them. */
final class Settings {
    private static final int MAX_SETTINGS = 256, MAX_TEXT_BYTES = 1 << 16;

    private final Map<String, String> values;

    private Settings(Map<String, String> values) {
        this.values = values;
    }

    static Settings read(DataInputStream in) throws IOException {
        int count = in.readUnsignedShort();
        if (count > MAX_SETTINGS) {
            throw new IOException("too many settings: " + count);
        }
        Map<String, String> values = new HashMap<>();
        for (int i = 0; i < count; i++) {
            values.put(text(in), text(in));
        }
        return new Settings(values);
    }

    private static String text(DataInputStream in) throws IOException {
        int length = in.readInt();
        if (length < 0 || length > MAX_TEXT_BYTES) {
            throw new IOException("a setting of " + length + " bytes");
        }
        return new String(in.readNBytes(length), StandardCharsets.UTF_8);
    }

    /** A setting, or null. */
    String text(String name) {
        return values.get(name);
    }

    long number(String name) {
        return Long.parseLong(values.getOrDefault(name, "0"));
    }

    boolean flag(String name) {
        return "yes".equals(values.get(name));
    }

    /** Settings whose name begins with this prefix, without it. */
    Map<String, String> under(String prefix) {
        Map<String, String> found = new HashMap<>();
        values.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), value);
            }
        });
        return found;
    }

    Destination destination(Session session) throws JMSException {
        String name = text("destination");
        return flag("topic") ? session.createTopic(name) : session.createQueue(name);
    }
}
