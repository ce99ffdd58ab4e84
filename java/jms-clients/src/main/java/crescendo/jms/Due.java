package crescendo.jms;

/** Messages with consecutive numbers: when each is due (0: at once), and how large it is. */
record Due(long firstSeq, long[] dueNs, int[] sizes) {
}
