-- Plans are made once. The planner would make a new one for every batch, because it takes the length of the arrays for
-- knowledge, and that took a third of a send's time; which index is walked is settled by the procedures anyway.

ALTER FUNCTION mlmq.hold_slots SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION mlmq.send_many SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION mlmq.peek_many SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION mlmq.dequeue_many SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION mlmq.acknowledge_many SET plan_cache_mode = force_generic_plan;
ALTER FUNCTION mlmq.extend_many SET plan_cache_mode = force_generic_plan;
