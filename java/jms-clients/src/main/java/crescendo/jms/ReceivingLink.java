package crescendo.jms;

import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/** Receives, reports the stamp of each message with the time at which `receive` returned, and acknowledges. */
final class ReceivingLink extends Link {
    private static final int STAMP_BYTES = 32, ECHO_BYTES = 40;
    private static final int MAGIC = 0xC501;
    private static final long WAIT_MS = 50, UNACKED_WAIT_MS = 2, BUSY_NS = 500_000_000;

    private final int tag;
    private final long consumingNs;
    private final String ack;
    private final int ackEvery;
    private final String replyPrefix;
    private final Map<Integer, Queue> replyQueues = new HashMap<>();
    private Session session;
    private MessageConsumer consumer;
    private MessageProducer replies;

    ReceivingLink(int index, Settings settings, Rows rows, int tag) {
        super("receiver", index, settings, rows);
        this.tag = tag;
        consumingNs = settings.number("consuming_ns");
        ack = settings.text("ack");
        ackEvery = (int) settings.number("ack_every");
        replyPrefix = settings.text("reply_prefix");
    }

    @Override
    void attach() throws JMSException {
        connect();
        session = connection.createSession(false, switch (ack) {
            case "client" -> Session.CLIENT_ACKNOWLEDGE;
            case "individual" -> vendor.individualAcknowledge();
            case "dups-ok" -> Session.DUPS_OK_ACKNOWLEDGE;
            default -> Session.AUTO_ACKNOWLEDGE;
        });
        String selector = settings.text("selector"), subscription = settings.text("subscription");
        consumer = subscription == null
            ? session.createConsumer(settings.destination(session), selector)
            : session.createDurableSubscriber(
                (Topic) settings.destination(session), subscription, selector, false);
        if (replyPrefix != null) {
            replies = session.createProducer(null);
            replies.setDeliveryMode(settings.flag("durable") ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
        }
    }

    @Override
    void work() throws JMSException, InterruptedException {
        boolean byHand = ack.equals("client") || ack.equals("individual");
        boolean individual = ack.equals("individual");
        Message unacked = null;
        int count = 0;
        long busyNs = 0, reportedNs = System.nanoTime(); // busy: with our own work, not with the client's
        connection.start();
        while (!stopping) {
            Message message = consumer.receive(unacked == null ? WAIT_MS : UNACKED_WAIT_MS);
            long receivedNs = System.nanoTime();
            if (message != null) {
                busyNs += take(message, receivedNs);
                if (byHand) {
                    unacked = message;
                    count++;
                }
            }
            if (unacked != null && (message == null || individual || consumingNs > 0 || count >= ackEvery)) {
                unacked.acknowledge();
                unacked = null;
                count = 0;
            }
            if (receivedNs - reportedNs > BUSY_NS) {
                rows.add(Rows.BUSY, 0, index, 0, busyNs, 0, 0, 0, 0, 0);
                reportedNs = receivedNs;
            }
        }
        if (unacked != null) {
            unacked.acknowledge();
        }
    }

    /** Report, answer and consume one message. Returns how long the report took. */
    private long take(Message message, long receivedNs) throws JMSException {
        ByteBuffer body = ByteBuffer.wrap(Vendor.body(message));
        boolean stamped = body.capacity() >= STAMP_BYTES;
        rows.add(
            Rows.RECEIVED, message.getJMSRedelivered() ? 1 : 0, index, body.capacity(), stamped ? body.getLong(0) : 0,
            stamped ? body.getLong(8) : 0, stamped ? body.getLong(16) : 0, stamped ? body.getLong(24) : 0, receivedNs, 0);
        long busyNs = System.nanoTime() - receivedNs;
        if (replies != null && body.capacity() >= ECHO_BYTES && (body.getShort(0) & 0xFFFF) == MAGIC
            && body.getInt(4) == tag) {
            answer(body);
        }
        if (consumingNs > 0) {
            long doneNs = receivedNs + consumingNs, left;
            while (!stopping && (left = doneNs - System.nanoTime()) > 0) {
                LockSupport.parkNanos(Math.min(left, WAIT_MS * 1_000_000));
            }
        }
        return busyNs;
    }

    /** The same bytes to the queue of its sender, with the time of the answer behind the stamp. */
    private void answer(ByteBuffer body) throws JMSException {
        int sender = body.getShort(2) & 0xFFFF;
        Queue queue = replyQueues.get(sender);
        if (queue == null) {
            queue = session.createQueue(replyPrefix + sender);
            replyQueues.put(sender, queue);
        }
        BytesMessage reply = session.createBytesMessage();
        body.putLong(STAMP_BYTES, System.nanoTime());
        reply.writeBytes(body.array());
        replies.send(queue, reply);
    }
}
