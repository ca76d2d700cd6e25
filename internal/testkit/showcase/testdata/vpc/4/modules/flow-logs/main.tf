variable "vpc_id" {
  type        = string
  description = "ID of the VPC whose flow logs are recorded."
}

variable "kms_key_arn" {
  type        = string
  default     = null
  description = "Key that encrypts the log group. AWS owns the key if this is null."
}

resource "aws_cloudwatch_log_group" "this" {
  name_prefix = "/vpc/flow-logs/"
  kms_key_id  = var.kms_key_arn
}

resource "aws_flow_log" "this" {
  vpc_id          = var.vpc_id
  traffic_type    = "ALL"
  log_destination = aws_cloudwatch_log_group.this.arn
}

output "log_group_arn" {
  value       = aws_cloudwatch_log_group.this.arn
  description = "ARN of the log group."
}
