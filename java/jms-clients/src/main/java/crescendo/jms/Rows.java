package crescendo.jms;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * What this process tells its parent: records of one size, in the order in which each connection made them.
 *
 * A record is a type, a flag, the index of a connection, a size, and six numbers, big-endian. Threads of connections add
 * to one buffer while another thread writes the other one. A full buffer makes them wait: nothing is dropped.
 */
final class Rows extends Thread {
    static final int RECORD_BYTES = 56;
    static final int HELLO = 1, READY = 2, SENT = 3, SETTLED = 4, RECEIVED = 5, ECHOED = 6, CLOSED = 7, DONE = 8, BUSY = 9;
    static final int ENDED = 10;
    private static final int RECORDS = 16_384;
    private static final long COLLECT_MS = 2; // a write per record would cost more than the client
    private static final int MAX_REASON_BYTES = 2_000;

    private final OutputStream out;
    private ByteBuffer filling = ByteBuffer.allocate(RECORDS * RECORD_BYTES);
    private boolean ending;

    Rows(OutputStream out) {
        super("rows");
        this.out = out;
    }

    synchronized void add(int type, int flag, int index, int size, long a, long b, long c, long d, long e, long f) {
        awaitRoom(RECORD_BYTES);
        filling.put((byte) type).put((byte) flag).putShort((short) index).putInt(size);
        filling.putLong(a).putLong(b).putLong(c).putLong(d).putLong(e).putLong(f);
        if (filling.position() == RECORD_BYTES || isHalfFull()) {
            notifyAll();
        }
    }

    void add(int type, int index) {
        add(type, 0, index, 0, 0, 0, 0, 0, 0, 0);
    }

    /** A record that is followed by a text, which is padded to whole records. */
    synchronized void close(int index, String reason) {
        byte[] text = reason.getBytes(StandardCharsets.UTF_8);
        int length = Math.min(text.length, MAX_REASON_BYTES);
        int padded = (length + RECORD_BYTES - 1) / RECORD_BYTES * RECORD_BYTES;
        awaitRoom(RECORD_BYTES + padded);
        filling.put((byte) CLOSED).put((byte) 0).putShort((short) index).putInt(length);
        filling.put(new byte[RECORD_BYTES - 8]);
        filling.put(text, 0, length).put(new byte[padded - length]);
        notifyAll();
    }

    /** Write what is left, and end. */
    void finish() throws InterruptedException {
        synchronized (this) {
            ending = true;
            notifyAll();
        }
        join();
    }

    private boolean isHalfFull() {
        return filling.remaining() < filling.capacity() / 2;
    }

    private void awaitRoom(int octets) {
        boolean interrupted = false;
        while (filling.remaining() < octets) {
            try {
                wait();
            } catch (InterruptedException ignored) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void run() {
        ByteBuffer writing = ByteBuffer.allocate(RECORDS * RECORD_BYTES);
        try {
            while (true) {
                synchronized (this) {
                    while (filling.position() == 0 && !ending) {
                        wait();
                    }
                    if (filling.position() == 0) {
                        return;
                    }
                    if (!isHalfFull() && !ending) {
                        wait(COLLECT_MS);
                    }
                    ByteBuffer full = filling;
                    filling = writing;
                    writing = full;
                    notifyAll();
                }
                out.write(writing.array(), 0, writing.position());
                writing.clear();
            }
        } catch (IOException | InterruptedException gone) {
            Runtime.getRuntime().halt(1); // the parent does not read any more
        }
    }
}
