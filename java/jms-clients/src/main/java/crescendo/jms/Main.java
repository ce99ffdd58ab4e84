package crescendo.jms;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;

/**
 * The JVM of `client: jms`: a child of one sender or receiver process, which tells it what to do on stdin and gets
 * records on stdout. Computes no due times and keeps no results. Ends when its parent does.
 */
public final class Main {
    private static final int MAGIC = 0x43524A4D, VERSION = 1; // "CRJM"
    private static final int SENDER = 0;
    private static final int START = 1, DUE = 2, END = 3, STOP = 4;
    private static final int MAX_CONNECTIONS = 32_767, MAX_ROWS = 1 << 16, MAX_SIZE = 64 << 20;

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        OutputStream out = new FileOutputStream(FileDescriptor.out);
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.err), true)); // stdout is for records alone
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16))) {
            Rows rows = new Rows(out);
            rows.setDaemon(true);
            rows.start();
            rows.add(Rows.HELLO, 0, 0, 0, MAGIC, VERSION, System.nanoTime(), 0, 0, 0);
            run(in, rows);
            rows.finish();
        } catch (EOFException gone) {
            Runtime.getRuntime().halt(0); // the parent has ended
        }
        System.exit(0); // clients may have left threads
    }

    private static void run(DataInputStream in, Rows rows) throws IOException, InterruptedException {
        if (in.readInt() != MAGIC || in.readUnsignedShort() != VERSION) {
            throw new IOException("the parent speaks another version");
        }
        boolean sends = in.readUnsignedShort() == SENDER;
        int tag = in.readInt();
        int count = in.readUnsignedShort();
        if (count > MAX_CONNECTIONS) {
            throw new IOException("too many connections: " + count);
        }
        StallMeter stalls = new StallMeter();
        stalls.start();
        Link[] links = new Link[count];
        for (int index = 0; index < count; index++) {
            Settings settings = Settings.read(in);
            links[index] = sends
                ? new SendingLink(index, settings, rows, stalls, tag)
                : new ReceivingLink(index, settings, rows, tag);
        }
        for (Link link : links) {
            link.setDaemon(true);
            link.start();
        }
        obey(in, links);
        for (Link link : links) {
            link.end();
        }
        for (Link link : links) {
            link.join();
        }
    }

    /** Carry out the parent's commands until it says stop. */
    private static void obey(DataInputStream in, Link[] links) throws IOException {
        while (true) {
            int type = in.readUnsignedByte();
            in.readUnsignedByte();
            int index = in.readUnsignedShort();
            int count = in.readInt();
            long value = in.readLong();
            if (index >= links.length || count < 0 || count > MAX_ROWS) {
                throw new IOException("a command for connection " + index + " with " + count + " rows");
            }
            switch (type) {
                case START -> {
                    for (Link link : links) {
                        link.begin(value);
                    }
                }
                case DUE -> ((SendingLink) links[index]).add(due(in, value, count));
                case END -> ((SendingLink) links[index]).endSending();
                case STOP -> {
                    return;
                }
                default -> throw new IOException("no command has the number " + type);
            }
        }
    }

    private static Due due(DataInputStream in, long firstSeq, int count) throws IOException {
        Due due = new Due(firstSeq, new long[count], new int[count]);
        for (int i = 0; i < count; i++) {
            due.dueNs()[i] = in.readLong();
            due.sizes()[i] = in.readInt();
            if (due.sizes()[i] < 0 || due.sizes()[i] > MAX_SIZE) {
                throw new IOException("a message of " + due.sizes()[i] + " bytes");
            }
        }
        return due;
    }
}
