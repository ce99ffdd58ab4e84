package crescendo.jms;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;

/** One JMS connection and the thread that uses it. It reports its own end, with the reason if there is one. */
abstract class Link extends Thread {
    protected final int index;
    protected final Settings settings;
    protected final Rows rows;
    protected final Vendor vendor;
    protected Connection connection;
    protected volatile boolean stopping;
    protected volatile long startNs;
    private volatile String failure;
    private boolean started;

    Link(String role, int index, Settings settings, Rows rows) {
        super(role + "-" + index);
        this.index = index;
        this.settings = settings;
        this.rows = rows;
        this.vendor = Vendor.valueOf(settings.text("vendor"));
    }

    /** Connect, sign in, and make the producer or the consumer. Nothing flows yet. */
    abstract void attach() throws JMSException;

    /** Send or receive until there is no more to do, or `stopping`. */
    abstract void work() throws JMSException, InterruptedException;

    protected void connect() throws JMSException {
        ConnectionFactory factory = vendor.factory(settings.text("url"));
        String user = settings.text("user");
        connection = user == null
            ? factory.createConnection()
            : factory.createConnection(user, settings.text("password"));
        String clientId = settings.text("client_id");
        if (clientId != null) {
            connection.setClientID(clientId);
        }
        connection.setExceptionListener(thrown -> fail(Vendor.reason(thrown)));
    }

    synchronized void begin(long t0) {
        startNs = t0;
        started = true;
        notifyAll();
    }

    /** Ask it to end soon. */
    synchronized void end() {
        stopping = true;
        notifyAll();
    }

    protected void fail(String reason) {
        if (failure == null) {
            failure = reason;
            rows.close(index, reason);
        }
        end();
    }

    @Override
    public void run() {
        try {
            attach();
            rows.add(Rows.READY, index);
            synchronized (this) {
                while (!started && !stopping) {
                    wait();
                }
            }
            if (!stopping) {
                work();
            }
        } catch (JMSException | RuntimeException thrown) {
            fail(Vendor.reason(thrown));
        } catch (InterruptedException ignored) {
            fail("interrupted");
        } finally {
            try {
                if (connection != null) {
                    connection.close();
                }
            } catch (JMSException | RuntimeException ignored) {
                // it is gone
            }
            rows.add(Rows.DONE, index);
        }
    }
}
