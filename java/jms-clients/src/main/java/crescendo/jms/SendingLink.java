package crescendo.jms;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Sends each message when it is due, and reports when it was sent, when the client's send returned, and how long the
 * window held it back. Time in which the whole process stood still is not reported as waiting. Which messages, and when they are due, is up to the parent.
 */
final class SendingLink extends Link {
    private static final int STAMP_BYTES = 32, ECHO_BYTES = 40;
    private static final int ACCEPTED = 1, REJECTED = 2;
    private static final int MAGIC = 0xC501;
    private static final long POLL_MS = 50;

    private final BlockingQueue<Due> dues = new LinkedBlockingQueue<>();
    private final AtomicLong waiting = new AtomicLong(); // due messages that were not sent yet
    private final StallMeter stalls;
    private final long maxWaiting;
    private final int tag;
    private final int number;
    private final boolean awaitsOutcomes;
    private final Semaphore window;
    private volatile boolean ended;
    private volatile long roomNs;
    private Session session;
    private MessageProducer producer;
    private MessageConsumer replies;

    SendingLink(int index, Settings settings, Rows rows, StallMeter stalls, int tag) {
        super("sender", index, settings, rows);
        this.stalls = stalls;
        this.tag = tag;
        number = (int) settings.number("number");
        maxWaiting = settings.number("max_waiting");
        awaitsOutcomes = settings.flag("awaits_outcomes");
        int size = (int) settings.number("window");
        window = size > 0 ? new Semaphore(size) : null;
    }

    void add(Due due) {
        if (waiting.addAndGet(due.dueNs().length) > maxWaiting) {
            throw new IllegalStateException("the parent sent more than " + maxWaiting + " due times");
        }
        dues.add(due);
    }

    /** Send no more, not even what is due. */
    void endSending() {
        ended = true;
        wake();
    }

    @Override
    synchronized void end() {
        super.end();
        wake();
    }

    /** A thread that waits for room must see that it is over. */
    private void wake() {
        if (window != null) {
            window.release();
        }
    }

    @Override
    void attach() throws JMSException {
        connect();
        session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        producer = session.createProducer(settings.destination(session));
        producer.setDeliveryMode(settings.flag("durable") ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
        if (settings.text("priority") != null) {
            producer.setPriority((int) settings.number("priority"));
        }
        producer.setTimeToLive(settings.number("ttl_ms"));
        if (settings.text("replies") != null) {
            Session receiving = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            replies = receiving.createConsumer(receiving.createQueue(settings.text("replies")));
            replies.setMessageListener(this::takeReply);
        }
        connection.start();
    }

    @Override
    void work() throws JMSException, InterruptedException {
        Map<String, String> properties = settings.under("property.");
        byte[] body = new byte[0];
        ByteBuffer stamp = null;
        awaitDue(startNs);
        while (!stopping && !ended) {
            Due block = dues.poll(POLL_MS, TimeUnit.MILLISECONDS);
            if (block == null) {
                continue;
            }
            for (int i = 0; i < block.dueNs().length && !stopping && !ended; i++) {
                long seq = block.firstSeq() + i, dueNs = block.dueNs()[i];
                if (body.length != block.sizes()[i]) {
                    body = new byte[block.sizes()[i]];
                    stamp = ByteBuffer.wrap(body);
                    stamp.putShort(0, (short) MAGIC).putShort(2, (short) number).putInt(4, tag);
                }
                if (!awaitDue(dueNs)) {
                    break;
                }
                long heldFrom = 0, heldUntil = 0;
                if (window != null && !window.tryAcquire()) {
                    heldFrom = System.nanoTime();
                    window.acquire();
                    heldUntil = stalls.waitedUntil(heldFrom, roomNs);
                    if (stopping || ended) {
                        break;
                    }
                }
                BytesMessage message = session.createBytesMessage();
                for (Map.Entry<String, String> property : properties.entrySet()) {
                    message.setStringProperty(property.getKey(), property.getValue());
                }
                stamp.putLong(8, seq);
                long sentNs = System.nanoTime();
                stamp.putLong(16, dueNs == 0 ? sentNs : dueNs).putLong(24, sentNs);
                message.writeBytes(body);
                if (awaitsOutcomes) {
                    vendor.send(producer, message, new Outcome(seq, sentNs));
                } else {
                    producer.send(message);
                }
                long returnedNs = stalls.waitedUntil(sentNs, System.nanoTime());
                waiting.decrementAndGet();
                rows.add(
                    Rows.SENT, 0, index, body.length, seq, dueNs == 0 ? sentNs : dueNs, sentNs, returnedNs, heldFrom,
                    heldUntil);
            }
        }
        rows.add(Rows.ENDED, index);
        synchronized (this) {
            while (!stopping) { // outcomes and answers may still arrive; the parent says when to stop
                wait();
            }
        }
    }

    /** Wait until then; false if it is over meanwhile. */
    private boolean awaitDue(long dueNs) {
        long left;
        while (dueNs != 0 && (left = dueNs - System.nanoTime()) > 0) {
            if (stopping || ended) {
                return false;
            }
            LockSupport.parkNanos(Math.min(left, POLL_MS * 1_000_000));
        }
        return true;
    }

    private void takeReply(Message message) {
        long receivedNs = System.nanoTime();
        try {
            ByteBuffer body = ByteBuffer.wrap(Vendor.body(message));
            if (body.capacity() < ECHO_BYTES || (body.getShort(0) & 0xFFFF) != MAGIC || body.getInt(4) != tag
                || body.getShort(2) != number) {
                return;
            }
            rows.add(
                Rows.ECHOED, 0, index, body.capacity(), body.getLong(8), body.getLong(16), body.getLong(24),
                body.getLong(STAMP_BYTES), receivedNs, 0);
            if (settings.flag("ping_pong") && window != null) {
                roomNs = receivedNs;
                window.release();
            }
        } catch (JMSException thrown) {
            fail(Vendor.reason(thrown));
        }
    }

    /** What the system said about one message. */
    private final class Outcome implements CompletionListener {
        private final long seq, sentNs;

        Outcome(long seq, long sentNs) {
            this.seq = seq;
            this.sentNs = sentNs;
        }

        @Override
        public void onCompletion(Message message) {
            settle(ACCEPTED);
        }

        @Override
        public void onException(Message message, Exception thrown) {
            if (!stopping) {
                settle(REJECTED);
                fail("the system refused a message: " + Vendor.reason(thrown));
            }
        }

        private void settle(int outcome) {
            long settledNs = System.nanoTime();
            rows.add(Rows.SETTLED, outcome, index, 0, seq, sentNs, settledNs, 0, 0, 0);
            if (window != null && !settings.flag("ping_pong")) {
                roomNs = settledNs;
                window.release();
            }
        }
    }
}
