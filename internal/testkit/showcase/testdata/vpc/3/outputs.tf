output "vpc_id" {
  value       = one(aws_vpc.this[*].id)
  description = "ID of the VPC."
}

output "vpc_cidr_block" {
  value       = one(aws_vpc.this[*].cidr_block)
  description = "IPv4 range of the VPC."
}

output "database_subnet_group" {
  value       = one(aws_db_subnet_group.this[*].name)
  description = "Name of the subnet group for databases."
}

output "flow_log_group_arn" {
  value       = one(aws_cloudwatch_log_group.flow_logs[*].arn)
  description = "ARN of the log group of flow logs, or null."
}

output "internet_gateway_id" {
  value       = one(aws_internet_gateway.this[*].id)
  description = "ID of the internet gateway."
}

output "route_table_ids" {
  value       = { public = one(aws_route_table.public[*].id), private = one(aws_route_table.private[*].id) }
  description = "IDs of the route tables by type."
}

output "peering_token" {
  value       = random_id.suffix.hex
  description = "Token that the transit account needs to accept the peering."
}

output "default_security_group_id" {
  value       = aws_vpc.this[0].default_security_group_id
  description = "ID of the default security group, which has no rules."
}

output "public_subnets" {
  value       = aws_subnet.public[*].id
  description = "IDs of the public subnets."
}
