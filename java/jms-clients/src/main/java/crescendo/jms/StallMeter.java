package crescendo.jms;

import java.util.Deque;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.locks.LockSupport;

/**
 * When did this whole process stand still (stopped, collecting garbage, or without a core)?
 *
 * A thread that only naps. When it wakes far too late, no other thread can be trusted to have run either, so time in a
 * client's call that overlaps such a stall was not spent waiting for the system.
 */
final class StallMeter extends Thread {
    private static final long NAP_NS = 2_000_000, STALL_NS = 20_000_000;
    private static final int MAX_STALLS = 64;

    private record Stall(long fromNs, long untilNs) {
    }

    private final Deque<Stall> stalls = new ConcurrentLinkedDeque<>(); // the latest first
    private volatile long awakeNs = System.nanoTime();

    StallMeter() {
        super("stalls");
        setDaemon(true);
        setPriority(MAX_PRIORITY);
    }

    @Override
    public void run() {
        while (true) {
            LockSupport.parkNanos(NAP_NS);
            long now = System.nanoTime();
            if (now - awakeNs > STALL_NS) {
                stalls.addFirst(new Stall(awakeNs, now));
                if (stalls.size() > MAX_STALLS) {
                    stalls.pollLast();
                }
            }
            awakeNs = now;
        }
    }

    /** Of a wait that seems to have ended at `untilNs`: when it certainly still was one, which is before any stall. */
    long waitedUntil(long fromNs, long untilNs) {
        if (untilNs - fromNs <= STALL_NS) {
            return untilNs;
        }
        long end = untilNs;
        long awake = awakeNs; // read before the list: a stall that is recorded meanwhile is then found in either
        if (untilNs - awake > STALL_NS) {
            end = Math.min(end, awake);
        }
        for (Stall stall : stalls) {
            if (stall.untilNs() > fromNs && stall.fromNs() < end) {
                end = stall.fromNs();
            }
        }
        return Math.max(end, fromNs);
    }
}
