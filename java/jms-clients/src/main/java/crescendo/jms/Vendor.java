package crescendo.jms;

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import org.apache.activemq.ActiveMQMessageProducer;
import org.apache.activemq.AsyncCallback;
import org.apache.qpid.jms.JmsConnectionFactory;

/** What differs between the clients: how a connection is made, and how a message is sent without waiting for it. */
enum Vendor {
    ACTIVEMQ {
        @Override
        ConnectionFactory factory(String url) {
            return new org.apache.activemq.ActiveMQConnectionFactory(url);
        }

        @Override
        int individualAcknowledge() {
            return org.apache.activemq.ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE;
        }

        // Its producer has no send with a CompletionListener, but one with a callback of its own.
        @Override
        void send(MessageProducer producer, BytesMessage message, CompletionListener done) throws JMSException {
            ActiveMQMessageProducer own = (ActiveMQMessageProducer) producer;
            own.send(
                own.getDestination(), message, own.getDeliveryMode(), own.getPriority(), own.getTimeToLive(),
                new AsyncCallback() {
                    @Override
                    public void onSuccess() {
                        done.onCompletion(message);
                    }

                    @Override
                    public void onException(JMSException reason) {
                        done.onException(message, reason);
                    }
                });
        }
    },
    ARTEMIS {
        @Override
        ConnectionFactory factory(String url) {
            return new org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory(url);
        }

        @Override
        int individualAcknowledge() {
            return org.apache.activemq.artemis.api.jms.ActiveMQJMSConstants.INDIVIDUAL_ACKNOWLEDGE;
        }
    },
    QPID {
        @Override
        ConnectionFactory factory(String url) {
            return new JmsConnectionFactory(url);
        }

        @Override
        int individualAcknowledge() {
            return 101; // as its documentation says; the constant is private
        }
    };

    abstract ConnectionFactory factory(String url) throws JMSException;

    abstract int individualAcknowledge();

    void send(MessageProducer producer, BytesMessage message, CompletionListener done) throws JMSException {
        producer.send(message, done);
    }

    /** The reason that the system gave, in its own words; clients wrap it in their own exceptions. */
    static String reason(Throwable thrown) {
        Throwable found = thrown;
        while (found.getMessage() == null && found.getCause() != null) {
            found = found.getCause();
        }
        return found.getMessage() == null ? found.getClass().getSimpleName() : found.getMessage();
    }

    static byte[] body(Message message) throws JMSException {
        if (!(message instanceof BytesMessage bytes)) {
            return new byte[0];
        }
        byte[] body = new byte[(int) Math.min(bytes.getBodyLength(), Integer.MAX_VALUE)];
        bytes.readBytes(body);
        return body;
    }
}
